"""A page of images: one scale for all, paper white and ink black, a title each, and the same bytes each time."""

import io

import numpy as np
import pytest
from PIL import Image

from coreshot.report.images import gallery, png


def pixels(figure):
    with Image.open(io.BytesIO(png(figure))) as picture:
        return np.asarray(picture.convert("L"))


def test_one_scale_for_all_images():
    """Learned images lie outside 0 to 1: the lowest pixel of all is white, the highest black, half-way is half-way."""
    images = np.stack([np.full((4, 4), value, np.float32) for value in (-2.0, 0.0, 2.0)])
    shades = [image.norm(image.get_array()).mean() for image in gallery(images, ["a", "b", "c"]).axes[0].images]
    assert shades == pytest.approx([0.0, 0.5, 1.0])
    page = pixels(gallery(images, ["", "", ""]))
    assert page.min() == 0
    assert page[0, 0] == 255
    given = gallery(images, ["a", "b", "c"], scale=(-4.0, 4.0)).axes[0].images
    assert [image.norm(image.get_array()).mean() for image in given] == pytest.approx([0.25, 0.5, 0.75])


def test_images_stand_line_by_line_under_their_titles():
    images = np.zeros((5, 8, 8, 1))
    axes = gallery(images, list("aB$_0"), num_columns=3, line_names=["one", "two"]).axes[0]
    places = [(image.get_extent()[0], image.get_extent()[3]) for image in axes.images]
    assert [round(x, 3) for x, _ in places] == [0.08, 1.24, 2.4, 0.08, 1.24]
    assert len({y for _, y in places[:3]}) == len({y for _, y in places[3:]}) == 1
    assert places[0][1] < places[3][1]  # the axis points down
    assert [text.get_text() for text in axes.texts] == ["a", "B", "$", "_", "0", "one", "two"]


def test_the_same_images_are_the_same_bytes():
    images = np.random.default_rng(0).normal(size=(3, 8, 8))
    assert png(gallery(images, ["1"] * 3, show_scale=True)) == png(gallery(images, ["1"] * 3, show_scale=True))


def test_a_title_too_few_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        gallery(np.zeros((2, 8, 8)), ["1"])
