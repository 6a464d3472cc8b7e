"""What one strategy finds by itself, for tests of strategies."""

from sciml.strategies.search import Log, Options, Workspace


def workspace(problem, *, discrete=None, measurements=None, watchers=(), **options):
    """A place to work in; ``discrete`` takes the place of the discrete problem that it would make."""
    work = Workspace(problem, measurements, Options(**options), Log(watchers))
    if discrete is not None:
        work.__dict__["discrete"] = discrete
    return work


def candidate(strategy, work, best=None):
    """The last candidate of a strategy, or None where it has none; watchers may end it."""
    found = []
    for each in strategy.candidates(work, best):
        found.append(each)
        if work.log.stopped:
            break
    return found[-1] if found else None
