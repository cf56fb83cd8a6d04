"""Run the campaigns of a setting, or read those that are finished."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from benchmarks.asynchrony.course import Course, course
from benchmarks.asynchrony.settings import Setting
from benchmarks.papers.campaigns import campaign, finish_and_read
from benchmarks.papers.experiment import Request

Courses = Mapping[str, tuple[Course, ...]]  # by method's name, in the order of the seeds


def run(setting: Setting, request: Request, first_seed: int, console: Console) -> Courses:
    """The courses of each method of `request` with each seed from the first on; the campaigns run
    one after the other.

    Raises CampaignError when one does not finish, KeyboardInterrupt on an interrupt. Finished
    campaigns are kept.
    """
    comparison = setting.comparison(request.methods)
    courses_by_method: dict[str, list[Course]] = {method.name: [] for method in comparison.methods}
    for seed in range(first_seed, first_seed + request.seeds):
        for method in comparison.methods:
            measured = course(finish_and_read(campaign(comparison, method, seed, request), is_resumed=False))
            courses_by_method[method.name].append(measured)
            line = f"{setting}: {method.name}, seed {seed}: {measured.makespan:.4g} s, {measured.refreshes} refreshes"
            console.print(Text(f"{line}, strategy {measured.strategy_seconds:.1f} s"), soft_wrap=True)
    return {name: tuple(courses) for name, courses in courses_by_method.items()}
