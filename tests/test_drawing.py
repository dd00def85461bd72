from matplotlib.figure import Figure

from bayesattn.claims import Picture
from bayesattn.drawing import INK, house_style, save_picture


def drawn(path):
    with house_style():
        figure = Figure(figsize=(2, 2))
        figure.add_subplot().plot([1, 2])
        figure.axes[0].set_title("title")
        save_picture(Picture("p", figure, "caption", "alt"), path)
    return path.read_text()


def test_ink_follows_the_colour_scheme_of_the_reader(tmp_path):
    svg = drawn(tmp_path / "figures" / "a.svg")
    assert INK not in svg
    assert "currentColor" in svg
    assert "prefers-color-scheme: dark" in svg
    assert svg.count("<style>") == 1
    assert "#0072b2" in svg


def test_a_figure_is_the_same_file_every_time(tmp_path):
    assert drawn(tmp_path / "a.svg") == drawn(tmp_path / "b.svg")


def test_the_style_ends_with_its_block():
    import matplotlib

    before = matplotlib.rcParams["text.color"]
    with house_style():
        assert matplotlib.rcParams["text.color"] == INK
    assert matplotlib.rcParams["text.color"] == before
