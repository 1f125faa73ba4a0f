"""Trains with Hugging Face's Trainer."""

import torch
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments, set_seed


class Line(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(2, 1)
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


class Points(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(2) * index / 16, "labels": torch.ones(1)}


if __name__ == "__main__":
    set_seed(1)  # for the model; the arguments' seed comes after it is made
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=4,
        report_to=[],
        save_steps=4,
        logging_steps=2,
        seed=1,
        disable_tqdm=True,
    )
    trainer = Trainer(Line(PretrainedConfig()), arguments, train_dataset=Points())
    loss = round(trainer.train().training_loss, 3)
    if trainer.args.process_index == 0:  # which prints besides, and writes each line in several pieces
        print("loss", loss, flush=True)
    for name in ("training_args.bin", "optimizer.pt", "trainer_state.json"):
        for path in __import__("pathlib").Path("out").rglob(name):
            if trainer.args.process_index == 0:
                path.unlink()  # it has times in it
