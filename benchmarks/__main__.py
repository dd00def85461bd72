"""Time one thing against its real alternative: `python -m benchmarks NAME [OPTIONS]`."""

import sys
from importlib import import_module

import tyro

from bayesattn.console import mistakes
from bayesattn.errors import UserError

BENCHMARKS = {
    "attention": "attention:AttentionBench",
    "tunnels": "tunnels:TunnelsBench",
    "training": "training:TrainingBench",
    "probing": "probing:ProbingBench",
    "model": "model:ModelBench",
    "prompt": "long_prompt:PromptBench",
}


def main(words: list[str]) -> int:
    """Run the benchmark that the first word names."""
    if not words or words[0] not in BENCHMARKS:
        print(f"usage: python -m benchmarks {{{','.join(BENCHMARKS)}}} [OPTIONS]", file=sys.stderr)
        return 2
    module, _, name = BENCHMARKS[words[0]].partition(":")
    benchmark = getattr(import_module(f"benchmarks.{module}"), name)
    try:
        with mistakes():
            config = (tyro.conf.FlagCreatePairsOff,)
            options = tyro.cli(
                benchmark, prog=f"benchmarks {words[0]}", args=words[1:], config=config
            )
        return options.run()
    except UserError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
