"""Numbers of one seed of a claim, to try `values` and `draw` on.

They are those that were recorded last, or stand in `examples/`: copies of files that
`bayesattn claims run CLAIM --seeds 1 --out FOLDER` leaves in `FOLDER/measured`.
"""

import json
import re
from pathlib import Path

from bayesattn.claims.bam_language import LanguageStudy
from bayesattn.claims.passkeys import Answers
from bayesattn.claims.registry import FOLDER, find_study, parse
from bayesattn.ledger.study import PartedStudy, Tier
from bayesattn.verdicts import Count

HERE = Path(__file__).parent
FOLDERS = (HERE.parents[1] / "results" / "measured", HERE / "examples")


def example(name):
    """The tier, and the result of one seed as the claim reads it."""
    study = find_study(name)
    for folder in FOLDERS:
        own = [
            json.loads(path.read_text("utf-8"))
            for path in sorted(folder.glob(f"{name}-*.json"))
            if re.match(rf"{name}-({'|'.join(Tier)})-", path.name)
        ]
        if own:
            tier, seed = own[0]["tier"], own[0]["seed"]
            own = [one for one in own if (one["tier"], one["seed"]) == (tier, seed)]
            parts = {one["part"]: one["numbers"] for one in own}
            numbers = parts if isinstance(study, PartedStudy) else parts[None]
            return Tier(tier), study.read({seed: numbers})
    if like := parse(name, (FOLDER / f"{name}.toml").read_text("utf-8")).like:
        return example(like)
    if isinstance(study, LanguageStudy):
        return Tier.FULL, {0: made_up(study.recipes[Tier.FULL])}
    raise AssertionError(f"put one measured seed of {name} into {FOLDERS[-1]}")


def made_up(recipe):
    """Answers of language models that find half; nobody needs to train many for a test."""
    found = {
        own.name: [Count(at % 2 or own.length == "1x", 1) for at in range(own.depths)]
        for own in recipe.questions
    }
    own = Answers(lr=recipe.lr, found=found, perplexity=7.0, shapes=[0.9, -0.2])
    return dict.fromkeys(recipe.variants, own)
