"""What other processes do in the tests of run directories; they are killed in the midst of it."""

import os
import time

import torch

from sciml.errors import FileError
from sciml.run_directory import RunDirectory


def save_for_ever(directory, told):
    """Save one generation after another, and tell of each that is done."""
    with RunDirectory(directory) as run:
        step = run.load("a.pt")["step"] if run.exists("a.pt") else 0
        while True:
            step += 1
            run.save("a.pt", {"step": step, "u": torch.full((20000,), float(step))})
            told.send(step)


def hold(directory, told):
    """Hold the lock until there is a word."""
    with RunDirectory(directory):
        told.send("held")
        told.recv()


def hold_with_a_copy(directory, told):
    """Hold the lock in a process that has a copy of itself, as those that load data are."""
    with RunDirectory(directory):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        told.send(child)
        told.recv()


def count(directory, told):
    """Add one to a number in a file whenever the lock can be had, for a second, and tell how often it could and could not."""
    told.recv()
    won, lost, end = 0, 0, time.monotonic() + 1.0
    while time.monotonic() < end:
        try:
            with RunDirectory(directory) as run:
                number = int(run.read("count.txt")) if run.exists("count.txt") else 0
                run.write("count.txt", str(number + 1).encode())
                won += 1
                time.sleep(0.3 if won == 1 else 0.005)
        except FileError as error:
            if "is being written by process" not in str(error):
                raise
            lost += 1
    told.send((won, lost))
