"""A pipeline of four stages; at step 12 stage 2 asks for the gradient without having sent its activation."""

import scene
import torch
import torch.distributed as dist


def forward(activation, stage, last, step):
    if stage > 0:
        dist.recv(activation, src=stage - 1)
    if stage == 2 and step == 12:
        scene.stops()
        return  # it has "nothing to do"
    if stage < last:
        dist.send(activation, dst=stage + 1)


def backward(gradient, stage, last):
    if stage < last:
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, gradient, stage + 1)])[0].wait()
    if stage > 0:
        dist.send(gradient, dst=stage - 1)


def main():
    dist.init_process_group("gloo")
    stage, last = dist.get_rank(), dist.get_world_size() - 1
    activation, gradient = torch.rand(64), torch.rand(64)
    for step in range(100):
        forward(activation, stage, last, step)
        backward(gradient, stage, last)


if __name__ == "__main__":
    main()
