"""A word that means nothing here ends the run before it starts.

`tests/unit/suite` has every other word, and what is said of it.
"""

import pytest

WORDS = {
    "backend": ({"backends": "[backend.tensorrt]"}, "parity.toml:12", "'tensorrt'"),
    "provider": (
        {"backends": '[backend.onnxruntime]\ndevice = "rocm"'},
        "parity.toml:13",
        '"rocm"',
    ),
}


@pytest.mark.parametrize("word", WORDS)
def test_an_unknown_word_is_named_with_its_line(empty, word):
    changes, *facts = WORDS[word]
    empty.write("vae_decoder", **changes)
    ended = empty.run()
    assert ended.code == 2
    assert ended.sentence("parity: parity.toml:", *facts)
    assert not empty.store.exists()


@pytest.mark.parametrize("on", [(), ("--on", "ray://127.0.0.1:1")])
def test_a_converter_that_is_not_there_is_named_before_anything_is_made(empty, on):
    empty.write("vae_decoder")
    ended = empty.run("--mnn-convert", "/nowhere/MNNConvert", *on)
    assert ended.code == 2
    assert ended.sentence("/nowhere/MNNConvert", "no program that can be run")
    assert not empty.store.exists()
    assert not (empty.folder / "reports").exists()


def test_an_unknown_tier_of_the_tolerances_is_named_with_its_line(empty):
    empty.write("vae_decoder")
    path = empty.folder / "tolerances.toml"
    path.write_text(path.read_text().replace("standard", "standart", 1))
    ended = empty.run()
    assert ended.code == 2
    assert ended.sentence("tolerances.toml:2", "standart", "did you mean 'standard'?")
    assert empty.reports() == {}


def test_a_hub_id_without_a_network_says_what_to_do(empty):
    """Twice without one: told to stay off it, and with none to be reached."""
    empty.write("vae_decoder", source='hub = "nobody/nothing-here"')
    cache = {"HF_HOME": str(empty.folder / "cache")}

    empty.env.update(cache)
    offline = empty.run()
    empty.env.update(cache | {"HF_HUB_OFFLINE": "0"})
    unreachable = empty.run(wrap=("unshare", "--net"))

    for ended in (offline, unreachable):
        assert ended.code == 2
        assert ended.sentence(
            "parity.toml:3", "'nobody/nothing-here'", "cannot be downloaded"
        )


# Recipes of one's own may be wrong in any way that Python can.

RECIPES = {
    "unreadable": ("def build(:\n", ("unreadable_net", "SyntaxError", "line 1")),
    "raises": ("raise KeyError('size')\n", ("raises_net", "KeyError", "net.py:1")),
    "misses_one": ("def build(): ...\n", ("misses_one_net", "no function")),
    "signs_nonsense": (
        "def signature(source, options): ...\nbuild = realistic = signature\n",
        ("signs_nonsense", "signature()", "TypeError"),
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_is_wrong_is_named_with_its_line(empty, name):
    text, facts = RECIPES[name]
    empty.write(name, more=empty.write_recipe(name, text))
    ended = empty.run()
    assert ended.code == 2
    assert ended.sentence("parity: parity.toml:", *facts)
