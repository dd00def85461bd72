"""Make `import bayesattn` enough for AutoModel, without waiting for transformers to load.

transformers has no plug-in list: it knows a model after the model's package has called `register`.
A call here would make every `import bayesattn`, and `bayesattn --help`, load torch and
transformers. So models are registered at once if transformers is loaded, otherwise after it loads.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def register_models() -> None:
    """Register our models with transformers now or as soon as it is imported."""
    if "transformers" in sys.modules:
        import_module("bayesattn.models")
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


class _Watcher(MetaPathFinder):
    """Finds transformers once, to know when it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "transformers":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Follower(spec.loader)
        return spec


class _Follower(Loader):
    """Loads a module with its own loader, then registers our models."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        import_module("bayesattn.models")
