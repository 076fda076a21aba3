"""Random histories of the protocol, and the shortest form of one that breaks a promise."""

import random
from typing import NamedTuple

from model.protocol import Guards, Step, Violation, World

STEPS = 70
_TRIES = 6
_NUMBERS = 12
_FAULT_CHANCE = 0.35

# How often each action is tried, relative to the others.
WORK = {
    "tick": 8,
    "hold": 20,
    "repeat": 6,
    "extend": 5,
    "release": 4,
    "sell": 2,
    "hear": 20,
    "answer": 20,
    "give_up": 2,
    "sweep": 2,
    "read": 16,
    "commit": 16,
    "compensate": 4,
    "reap": 4,
    "hear_mode": 14,
    "build": 8,
    "cut_over": 8,
    "commit_mode": 16,
}
# Each history has some of these only, or too little work would get done for a fault to spoil.
FAULTS = {
    "drift": 8,
    "copy": 6,
    "restart": 3,
    "flush": 2,
    "promote": 3,
    "follow_and_lead": 3,
    "crash": 2,
    "reconnect": 6,
    "close": 2,
    "fall_back": 4,
    "abandon": 2,
}


class Broken(NamedTuple):
    """A history that ends with a broken promise."""

    guards: Guards
    seed: int
    steps: tuple[Step, ...]
    promise: str

    def __str__(self) -> str:
        """The history in sentences."""
        world = World(self.guards)
        told = []
        for step in self.steps[:-1]:
            said = world.act(step)
            if said is not None:
                told.append(said)
        return "\n".join([*told, self.steps[-1][0], self.promise])


def run(guards: Guards, seed: int, world: World | None = None) -> Broken | None:
    """Play one history, in a world of its own or the one given; returns it if it breaks a promise."""
    chance = random.Random(seed)  # noqa: S311 - a history that can be repeated is the point.
    world = world or World(guards)
    weights = WORK | {name: weight for name, weight in FAULTS.items() if chance.random() < _FAULT_CHANCE}
    done: list[Step] = []
    for name in chance.choices(list(weights), list(weights.values()), k=STEPS * _TRIES):
        step = (name, chance.randrange(_NUMBERS), chance.randrange(_NUMBERS), chance.randrange(_NUMBERS))
        try:
            if world.act(step) is not None:
                done.append(step)
        except Violation as violation:
            return Broken(guards, seed, (*done, step), str(violation))
        if len(done) == STEPS:
            break
    return None


def replay(guards: Guards, seed: int, steps: tuple[Step, ...]) -> Broken | None:
    """The history these steps make, if it breaks a promise. A step that is not possible any more is left out."""
    world = World(guards)
    done: list[Step] = []
    for step in steps:
        try:
            if world.act(step) is not None:
                done.append(step)
        except Violation as violation:
            return Broken(guards, seed, (*done, step), str(violation))
    return None


def shorten(broken: Broken) -> Broken:
    """Leave out steps for as long as what is left still breaks a promise."""
    shortest = broken
    at = 0
    while at < len(shortest.steps):
        for size in (8, 4, 2, 1):
            steps = shortest.steps[:at] + shortest.steps[at + size :]
            shorter = replay(broken.guards, broken.seed, steps)
            if shorter is not None:
                shortest, at = shorter, -1
                break
        at += 1
    return shortest
