"""Models of which not all ranks run, or compile, the same part; the argument says which."""

import sys

import scene
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(12, 32)

    def forward(self, pixels):
        return self.project(pixels.flatten(1)).relu()


class Multimodal(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.tower, self.head = nn.Embedding(100, 32), Tower(), nn.Linear(32, 100)

    def forward(self, tokens, pixels=None):
        hidden = self.embed(tokens).mean(1)
        if pixels is not None:
            hidden = hidden + self.tower(pixels)
        return self.head(hidden)


def sharded():
    model = Multimodal()
    for part in (model.tower, model.head, model):
        fully_shard(part)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def text_only():
    """Rank 2 has a batch without an image, and does not gather the tower's weights."""
    model, optimizer = sharded()
    for step in range(20):
        pixels = torch.rand(4, 3, 2, 2)
        if step == 5:
            scene.stops()
            pixels = None if dist.get_rank() == 2 else pixels
        model(torch.randint(0, 100, (4, 16)), pixels).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(1))


def text_and_images():
    """All ranks run the tower; that without an image throws the result away, and is slow once."""
    model, optimizer = sharded()
    for step in range(10):
        pixels = torch.rand(4, 3, 2, 2)
        if step == 5 and dist.get_rank() == 2:
            scene.decode(scene.SECONDS)
            pixels *= 0
        model(torch.randint(0, 100, (4, 16)), pixels).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def full_state():
    """The whole state is asked for on the main process alone."""
    model, optimizer = sharded()
    for step in range(12):
        model(torch.randint(0, 100, (4, 16)), torch.rand(4, 3, 2, 2)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 7:
            scene.stops()
            if dist.get_rank() == 0:
                save(model)


def save(model):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    torch.save(state, "/dev/null")


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.expert = nn.Linear(16, 16)

    def forward(self, x, keep):
        chosen = keep.nonzero().flatten()
        if chosen.numel() == 0:
            return x
        sent = x[chosen][: len(chosen) // dist.get_world_size() * dist.get_world_size()].detach()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        out = self.expert(received)
        back = torch.empty_like(out)
        dist.all_to_all_single(back, out.detach())
        return x.sum() + out.sum()


def no_tokens():
    """Rank 1's router drops all of a batch, and its layer returns before the exchange."""
    stem, experts = nn.Linear(16, 16), Experts()
    for step in range(30):
        keep = torch.ones(16, dtype=torch.bool)
        if step == 12:
            scene.stops()
            keep[:] = dist.get_rank() != 1
        experts(stem(torch.rand(16, 16)), keep).mean().backward()
        for parameter in (*stem.parameters(), *experts.parameters()):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.zeros(x.shape[0], x.shape[2])
        for place in range(x.shape[1]):
            hidden = torch.tanh(self.cell(hidden) + x[:, place])
        return hidden.mean()


def compiles():
    """Rank 1's sequence has another length: it compiles anew, for minutes."""
    model = Recurrent()
    step = torch.compile(model, backend="aot_eager", dynamic=False)
    for number in range(10):
        odd = dist.get_rank() == 1 and number == 4
        if odd:
            scene.stops()
        step(torch.rand(2, 20000 if odd else 8, 8)).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
