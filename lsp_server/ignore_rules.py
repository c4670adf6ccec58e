"""The rules of ignore files: one line each, in the syntax of .gitignore, and which of them decides over a path.

pathspec translates a line's pattern. Which rule decides is worked out here, as git does over nested files: from the
outermost folder down to the file, the last rule that matches decides, and what lies in an excluded folder is excluded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# pathspec passes over these names, which git knows inside of brackets.
_CHARACTER_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9A-Fa-f",
    "[:space:]": " \t\r\n\v\f",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of an ignore file."""

    text: str
    line: int  # from 1
    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Whether the rule names this very path (relative to the folder of the rule's file), not a folder above it."""
        if self.folders_only and not is_folder:
            return False
        match = self.pattern.search(path)
        # The one group in pathspec's expressions is the slash after a folder, when the pattern matched that.
        return match is not None and match.lastgroup is None


class BadRule(ValueError):
    """A line that is no pattern; git passes over it."""


def parse_rule(text: str, line: int, *, ignore_case: bool) -> Rule | None:
    """The rule of a line, or None for a blank line or a comment; BadRule if it is neither."""
    written = text.removesuffix("\r").rstrip(" ")
    folders_only = written.endswith("/")
    if written.endswith("\\"):
        written = text.removesuffix("\r")  # its last space is escaped
    pattern = written.removesuffix("/")
    if "[:" in pattern:
        for name, characters in _CHARACTER_CLASSES.items():
            pattern = pattern.replace(name, characters)
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    try:
        expression, include = GitIgnoreSpecPattern.pattern_to_regex(pattern)
        if expression is None:
            return None
        return Rule(written, line, re.compile(expression, flags), negated=not include, folders_only=folders_only)
    except (ValueError, re.error) as error:
        raise BadRule(f"line {line}: {written!r} is not a pattern") from error


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules of one file, and how many folders below the top lies the one that they are relative to."""

    source: str
    depth: int
    rules: Sequence[Rule]


def deciding_rule(scopes: Sequence[Scope], parts: Sequence[str]) -> tuple[Scope, Rule] | None:
    """The rule that excludes the file at `parts` below the top, or None; later scopes go before earlier ones."""
    for end in range(1, len(parts) + 1):
        found = _last_match(scopes, parts[:end], is_folder=end < len(parts))
        if found is not None and not found[1].negated:
            return found
    return None


def _last_match(scopes: Sequence[Scope], parts: Sequence[str], *, is_folder: bool) -> tuple[Scope, Rule] | None:
    for scope in reversed(scopes):
        if scope.depth < len(parts):
            path = "/".join(parts[scope.depth :])
            rule = last_match(scope.rules, path, is_folder=is_folder)
            if rule is not None:
                return scope, rule
    return None


def last_match(rules: Sequence[Rule], path: str, *, is_folder: bool) -> Rule | None:
    """The rule that decides among those of one file."""
    return next((rule for rule in reversed(rules) if rule.matches(path, is_folder=is_folder)), None)
