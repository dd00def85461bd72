"""`bayesattn check-prior`: whether priors of your own do what every prior must."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from bayesattn import plugins
from bayesattn.commands.options import Answer, Asking, JsonTarget, parse_pairs
from bayesattn.errors import UserError


@dataclass(frozen=True, kw_only=True)
class CheckPrior(Asking):
    """Check the priors that a file registers: shapes, precision, gradients, reach, state.

    The tests of our own priors run the same checks. Exit code 1 if one of them fails.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE.py")]
    """Python file that puts its priors into `bayesattn.priors.PRIORS`."""
    options: Annotated[Positional[tuple[str, ...]], arg(metavar="[KEY=VALUE ...]")] = ()
    """Arguments of the priors."""
    json: JsonTarget = None

    def answer(self) -> Answer:
        from bayesattn.priors import PRIORS
        from bayesattn.priors.contract import CHECKS, asked, failures, make_for

        before = set(PRIORS)
        plugins.import_file(str(self.file.resolve()))
        own = {name: kind for name, kind in PRIORS.items() if kind.__module__ == self.file.stem}
        if not own:
            raise UserError(
                f'{self.file} registers no prior: end it with PRIORS["name"] = YourPrior '
                f"(there are {', '.join(sorted(before))})."
            )
        given = parse_pairs("check-prior", self.options)
        rows: list[dict[str, str]] = []
        data: dict[str, Any] = {}
        for name, kind in own.items():
            data[name] = wrong = failures(make_for(kind, given))
            rows += [
                {
                    "prior": name,
                    "check": check,
                    "": "✗ fails" if check in wrong else "✓ holds",
                    "what": wrong.get(check, asked(check)),
                }
                for check in CHECKS
            ]
        return Answer(data, [rows], int(any(data.values())))
