import subprocess
import sys

import pytest

from bayesattn.priors import PRIORS, Bucketed, GeneralizedGaussian, Laplace, make_prior


def test_a_prior_is_found_by_its_name():
    assert list(PRIORS) == ["uniform", "laplace", "ggd", "student", "bucketed"]
    for name, kind in PRIORS.items():
        prior = make_prior(name, 3)
        assert type(prior) is kind
        assert prior.name == name
        assert prior.num_heads == 3


def test_options_reach_the_prior():
    assert repr(make_prior("ggd", 8, init="mixed")) == (
        "GeneralizedGaussian(num_heads=8, init='mixed', learn_mu=False)"
    )
    assert isinstance(prior := make_prior("bucketed", 2, num_buckets=8, max_distance=20), Bucketed)
    assert prior.theta_bucket.shape == (2, 8)
    assert isinstance(prior := make_prior("laplace", 2, learned=True), Laplace)
    assert prior.log2_slopes.requires_grad
    assert isinstance(make_prior("ggd", 2, learn_mu=True), GeneralizedGaussian)


def test_an_unknown_name_lists_the_names_and_the_nearest():
    with pytest.raises(ValueError, match=r"'laplas'.*mean 'laplace'.*uniform, laplace, ggd"):
        make_prior("laplas", 8)
    with pytest.raises(ValueError, match="unknown prior 'zzz'; choose one of uniform"):
        make_prior("zzz", 8)


def test_an_unknown_option_lists_the_options():
    with pytest.raises(TypeError, match=r"ggd prior has no option 'alpha'.*init, learn_mu"):
        make_prior("ggd", 8, alpha=1)
    with pytest.raises(TypeError, match=r"uniform prior has no option 'slopes'.*: none"):
        make_prior("uniform", 8, slopes=[1])


def test_importing_priors_does_not_import_what_only_drawing_needs():
    code = (
        "import sys, bayesattn.priors; print({'matplotlib', 'scipy', 'jaxtyping'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
