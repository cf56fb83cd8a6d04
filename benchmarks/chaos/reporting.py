"""The accounts of all campaigns as Markdown, and as a file from which a later run continues."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.chaos.course import Result

_NAMES = {
    "worker": "a process that evaluates",
    "coordinator": "the central actor",
    "driver": "the driver, or `bbkb attach`",
    "node": "a worker node (its raylet)",
    "head": "the head, and with it the cluster",
    "server": "the database server",
}


_RESULT = TypeAdapter(Result)


def keep(folder: Path, result: Result) -> None:
    """Add a campaign's account to those in the folder."""
    with (folder / "results.jsonl").open("ab") as file:
        file.write(_RESULT.dump_json(result) + b"\n")


def read_earlier(folder: Path) -> list[Result]:
    """The results that `keep` wrote into the folder."""
    file = folder / "results.jsonl"
    return [_RESULT.validate_json(text) for text in file.read_bytes().splitlines()] if file.exists() else []


def report(results: Sequence[Result]) -> str:
    """Victims, lost and repeated evaluations, recovery times and broken promises."""
    broken = [f"{result.plan.kind} seed {result.plan.seed}: {text}" for result in results for text in result.complaints]
    complaints = "\n".join(broken) or "Every promise was kept."
    return "\n\n".join([_promises(results), _kills(results), _describe_repeated(results), complaints])


def line(result: Result) -> str:
    """One line on a campaign, printed when it ends."""
    account = result.account
    return (
        f"{result.plan.kind:<6} {result.plan.seed:>4}: {sum(account.kills.values())} kills in {result.seconds:.0f} s, "
        f"{account.results} results, {account.set_aside} set aside, {account.sessions} sessions, {account.lost} lost, "
        f"{account.twice} twice, {sum(account.repeated.values())} repeated ({account.repeated_seconds:.1f} s)"
        f"{', hung' if result.is_hung else ''}, {len(result.complaints)} complaints"
    )


def _promises(results: Sequence[Result]) -> str:
    accounts = [result.account for result in results]
    kinds = sorted({result.plan.kind for result in results})
    failed = _sum(account.failures for account in accounts)
    rows = [
        ("campaigns", f"{len(results)} (workers: {', '.join(kinds)})"),
        ("SIGKILLs", str(sum(sum(account.kills.values()) for account in accounts))),
        ("evaluations recorded", str(sum(account.results for account in accounts))),
        ("**finished results lost**", f"**{sum(account.lost for account in accounts)}**"),
        ("**recorded twice**", f"**{sum(account.twice for account in accounts)}**"),
        ("**hangs**", f"**{sum(result.is_hung for result in results)}**"),
        ("campaigns with a complaint", str(sum(len(result.complaints) > 0 for result in results))),
        ("sessions of the campaign", str(sum(account.sessions for account in accounts))),
        ("starts of `bbkb attach`", str(sum(result.attaches for result in results))),
        ("starts of `bbkb resume`", str(sum(result.resumes for result in results))),
        ("attempts recorded as lost", ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items())) or "0"),
        ("trials set aside: their arm had ended three workers", str(sum(account.set_aside for account in accounts))),
    ]
    return _table(("", "count"), rows)


def _kills(results: Sequence[Result]) -> str:
    rows = []
    strikes = _sum(result.account.strikes for result in results)
    for label, count in strikes.items():
        seconds = [recovery for result in results for recovery in result.account.recoveries.get(label, ())]
        middle, most = (f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}") if seconds else ("", "")
        rows.append((_NAMES.get(label, label), str(count), str(len(seconds)), middle, most))
    heads = ("killed", "how often", "strikes that interrupted work", "recovery, median s", "recovery, longest s")
    return _table(heads, rows)


def _describe_repeated(results: Sequence[Result]) -> str:
    rows = []
    for kind in sorted({result.plan.kind for result in results}):
        accounts = [result.account for result in results if result.plan.kind == kind]
        repeated = _sum(account.repeated for account in accounts)
        causes = ", ".join(f"{count} {cause}" for cause, count in repeated.items())
        seconds = sum(account.repeated_seconds for account in accounts)
        useful = sum(account.evaluation_seconds for account in accounts)
        executions = sum(account.executions for account in accounts)
        rows.append((kind, str(executions), causes or "none", f"{seconds:.1f}", f"{useful:.0f}"))
    heads = (
        "workers",
        "executions",
        "not in the log, by victim",
        "seconds of lost work",
        "seconds recorded",
    )
    return _table(heads, rows)


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
