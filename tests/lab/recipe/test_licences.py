from __future__ import annotations

from email.message import Message
from importlib.metadata import PackageMetadata
from typing import cast

import pytest

from midfill_lab.recipe.licences import judge_licence


def permitted(*headers: tuple[str, str]) -> bool:
    metadata = Message()
    for key, value in headers:
        metadata[key] = value
    return judge_licence(cast(PackageMetadata, metadata)).permitted


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("GPL-3.0-or-later OR MIT", True),
        ("MIT AND GPL-2.0-only", False),
        ("(MIT OR GPL-2.0-only) AND BSD-2-Clause", True),
        ("(MIT AND GPL-2.0-only) OR MPL-2.0", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("LicenseRef-Proprietary", False),
    ],
)
def test_an_expression_permits_what_all_its_obligations_permit(expression: str, expected: bool) -> None:
    assert permitted(("License-Expression", expression)) is expected


def test_the_expression_decides_over_classifiers_and_field() -> None:
    classifier = ("Classifier", "License :: OSI Approved :: MIT License")
    assert not permitted(("License-Expression", "MPL-2.0"), classifier, ("License", "MIT"))


def test_every_classifier_has_to_permit() -> None:
    mit, gpl = (("Classifier", f"License :: OSI Approved :: {name}") for name in ("MIT License", "GPL License"))
    assert permitted(("Classifier", "License :: OSI Approved"), mit)
    assert not permitted(mit, gpl)


@pytest.mark.parametrize("field", ["MIT", "mit", "BSD License", "Apache License 2.0", "PSF"])
def test_common_names_in_the_field_are_understood(field: str) -> None:
    assert permitted(("License", field))


@pytest.mark.parametrize("field", ["", "UNKNOWN", "see LICENSE", "Custom\nMIT", "MIT, see\n the file"])
def test_what_is_not_understood_is_refused(field: str) -> None:
    assert not permitted(("License", field))
    assert not permitted()
