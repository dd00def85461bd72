from tests.training.conftest import corpus, language_folder, trained

__all__ = ["corpus", "language_folder", "trained"]
