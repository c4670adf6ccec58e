"""Languages: ids, file names, lexers, what begins the lines that close a block, and indentation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from protocol.stopping import columns

TAB_COLUMNS: Final = 4
BODY_OPENERS = (":", "{", "=>")  # after which the body is one step deeper; after `(` two steps are common
OPENS, CLOSES = "opens", "closes"  # what a line does to a block
_LEAST_EVIDENCE = 2  # headers with a body


def leading_space(line: str) -> str:
    """The white space that the line begins with."""
    return line[: len(line) - len(line.lstrip())]


def indentation(line: str, tab_columns: int = TAB_COLUMNS) -> int:
    """The columns of white space that the line begins with."""
    return columns(leading_space(line), tab_columns)


def tab_width(lines: Iterable[str]) -> Literal[4, 8]:
    """The columns of a tab: 8 where spaces make the steps up to there, as in Vim's and GNU's sources; 4 where tabs do.

    Lines that begin with a star are aligned in a comment.
    """
    spaces = [leading_space(line) for line in lines if line.strip() and not line.lstrip().startswith("*")]
    if "\t" not in "".join(spaces):
        return 8  # the first tab stands for the columns that spaces do not reach
    small = sum(2 <= len(space) < 8 and "\t" not in space for space in spaces)
    large = sum(len(space) >= 8 and "\t" not in space for space in spaces)
    return 8 if small > 2 * large else TAB_COLUMNS


def indent_unit(lines: Iterable[str]) -> str:
    """The white space by which lines are deeper than the header above them; empty if few are, or not all alike."""
    steps = []
    above = ""
    for line in lines:
        if not line.strip():
            continue
        if above.endswith(BODY_OPENERS) and len(leading_space(line)) > len(leading_space(above)):
            steps.append(leading_space(line).removeprefix(leading_space(above)))
        above = line.rstrip()
    alike = len(steps) >= _LEAST_EVIDENCE and len(set(steps)) == 1
    return steps[0] if alike and steps[0] != " " else ""


SCRIPTS = frozenset({"javascript", "javascriptreact", "svelte", "typescript", "typescriptreact", "vue"})
"""The languages that import as JavaScript does."""

_FAMILIES = (
    SCRIPTS,
    frozenset({"css", "html", "less", "sass", "scss", "svelte", "vue"}),
    frozenset({"c", "cpp", "cuda-cpp", "objective-c", "objective-cpp"}),
    frozenset({"groovy", "java", "kotlin", "scala"}),
    frozenset({"csharp", "fsharp", "vb"}),
)
# By id: the grammars of tree-sitter that the index of a workspace folder reads.
_GRAMMARS = {
    **{known: known for known in ("python", "javascript", "typescript", "go", "rust")},
    "javascriptreact": "javascript",
    "typescriptreact": "tsx",
}
# By id: what a string of several lines begins and ends with; a heredoc ends with its word.
_QUOTES = {
    **dict.fromkeys(("dart", "python", "toml"), ('"""', "'''")),
    **dict.fromkeys(("csharp", "elixir", "java", "julia", "kotlin", "scala", "swift"), ('"""',)),
    **dict.fromkeys(("go", "javascript", "javascriptreact", "typescript", "typescriptreact"), ("`",)),
    **dict.fromkeys(("crystal", "perl", "ruby", "terraform"), ("<<",)),
    "php": ("<<<",),
    "shellscript": ("<<", "<< "),
}
_NEED_LEXER = SCRIPTS - {"svelte", "vue"} | {"crystal", "ocaml", "perl", "ruby"}
_CLOSERS = (")", "]", "}", "</", "/>")  # of every language, since its strings may hold text of others
_LABELS = ("case", "default", "public:", "private:", "protected:")  # of braces; many styles do not indent them
_END_WORDS = ("end", "fi", "done", "esac")  # the same, but where a block ends with its last deeper line


@dataclass(frozen=True, slots=True)
class Language:
    """A language by its LSP id.

    Attributes:
        files: the suffixes of its files, and whole names of files without one.
        lexer: the name of its lexer in Pygments; empty without one.
        closers: what the last line of a block begins with, besides brackets and tags; if `ends_by_depth`, one of a script's.
        openers: the words that one of `closers` closes, as a regular expression; empty for tags.
        joining: what a line may begin with that is as deep as the header above it and belongs to its block.
        labels: the same, but one of them is no header of another.
        depthless: what a line begins with whose depth means nothing.
        balanced: whether each bracket outside of comments and literals has its partner.
        ends_by_depth: whether a block ends with its last deeper line.
        spaced: whether the depth of a line has a meaning in columns, so that no line may move.
    """

    id: str
    files: tuple[str, ...] = ()
    lexer: str = ""
    closers: tuple[str, ...] = ()
    openers: str = ""
    joining: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    depthless: tuple[str, ...] = ()
    balanced: bool = False
    ends_by_depth: bool = False
    spaced: bool = False

    @property
    def all_closers(self) -> tuple[str, ...]:
        """What the last line of a block begins with."""
        return _CLOSERS + (() if self.ends_by_depth else _END_WORDS + self.closers)

    @property
    def quotes(self) -> tuple[str, ...]:
        """What a string of several lines begins and ends with, if known."""
        return _QUOTES.get(self.id, ())

    @property
    def block_lines(self) -> str:
        """A regular expression for lines that open or close a block by a word; empty if no word does.

        Its first group is the line's white space, and its last one is named OPENS or CLOSES.
        """
        if not self.openers:
            return ""
        word = rf"(?:{'|'.join(map(re.escape, self.closers))})\b"
        opener = rf"{self.openers}|.*{self.openers}(?: \|.*\|)?[ \t\r]*$"
        return rf"([ \t]*)(?:(?P<{CLOSES}>{word})|(?P<{OPENS}>(?=\S)(?!.*\b{word})(?:{opener})))"

    @property
    def needs_lexer(self) -> bool:
        """Whether quotes do not show what a literal is: a regular expression may hold one, and a type begin with it."""
        return self.id in _NEED_LEXER

    @property
    def has_formulas(self) -> bool:
        """Whether a formula stands between dollar signs."""
        return self.id in {"latex", "markdown", "tex"}


def related(language_id: str, other: str) -> bool:
    """Whether text of one language helps with the other."""
    return language_id == other or any(language_id in family and other in family for family in _FAMILIES)


def language(language_id: str) -> Language:
    """The language with this LSP id; of an unknown one nothing is known."""
    return _by_id().get(language_id) or Language(language_id)


def language_id_of(name: str) -> str:
    """The language id for a file's name or suffix; an unknown suffix is returned itself, without its dot."""
    suffix = name[name.rfind(".") :] if "." in name else name
    return _by_file().get(name) or _by_file().get(suffix) or suffix.removeprefix(".")


def grammar_by_file() -> dict[str, str]:
    """The grammar of tree-sitter for each suffix of the languages that have one."""
    return {file: _GRAMMARS[known.id] for known in _LANGUAGES if known.id in _GRAMMARS for file in known.files}


@cache
def _by_id() -> dict[str, Language]:
    return {known.id: known for known in _LANGUAGES}


@cache
def _by_file() -> dict[str, str]:
    return {file: known.id for known in _LANGUAGES for file in known.files}


def _braces(language_id: str, files: str, lexer: str = "", *closers: str, depthless: str = "") -> Language:
    """A language whose blocks are in braces, which may stand on lines of their own."""
    name, every = lexer or language_id, tuple(depthless)
    return Language(language_id, tuple(files.split()), name, closers, "", ("{",), _LABELS, every, balanced=True)


def _words(language_id: str, files: str, closers: str, openers: str, lexer: str = "", *labels: str) -> Language:
    """A language whose blocks end with words."""
    name, pattern = lexer or language_id, rf"\b(?:{openers})\b"
    return Language(language_id, tuple(files.split()), name, tuple(closers.split()), pattern, labels=labels)


def _markup(language_id: str, files: str, lexer: str = "") -> Language:
    return Language(language_id, tuple(files.split()), lexer, ("{%", "{{/"))


def _spaced(language_id: str, files: str, lexer: str = "", *joining: str, closers: tuple[str, ...] = ()) -> Language:
    """A language in which columns are syntax."""
    return Language(language_id, tuple(files.split()), lexer, closers, joining=joining, ends_by_depth=True, spaced=True)


_LANGUAGES = (
    Language("python", (".py", ".pyi", ".pyw"), "python", balanced=True, ends_by_depth=True),
    _braces("javascript", ".js .mjs .cjs"),
    _braces("javascriptreact", ".jsx", "jsx"),
    _braces("typescript", ".ts .mts .cts"),
    _braces("typescriptreact", ".tsx", "tsx"),
    _braces("c", ".c .h", "c", depthless="#"),
    _braces("cpp", ".cpp .cc .cxx .hpp .hh .hxx .ipp", "cpp", depthless="#"),
    _braces("cuda-cpp", ".cu .cuh", "cuda", depthless="#"),
    _braces("objective-c", ".m", "objective-c", "@end", depthless="#"),
    _braces("objective-cpp", ".mm", "objective-c++", "@end", depthless="#"),
    _braces("csharp", ".cs", "csharp", depthless="#"),
    _braces("java", ".java"),
    _braces("kotlin", ".kt .kts"),
    _braces("scala", ".scala .sc"),
    _braces("swift", ".swift", "swift", depthless="#"),
    _braces("dart", ".dart"),
    _braces("go", ".go"),
    _braces("rust", ".rs"),
    _braces("php", ".php", "php", "?>", "endif", "endforeach", "endwhile", "endfor", "endswitch"),
    _braces("groovy", ".groovy .gradle"),
    _braces("zig", ".zig"),
    _braces("json", ".json"),
    _braces("jsonc", ".jsonc", "json"),
    _braces("css", ".css"),
    _braces("scss", ".scss"),
    _braces("less", ".less"),
    _braces("proto", ".proto", "protobuf"),
    _braces("terraform", ".tf .tfvars"),
    Language("graphql", (".graphql", ".gql"), "graphql"),
    _words(
        "ruby",
        ".rb .rake .gemspec Gemfile Rakefile",
        "end",
        "class|module|def|if|unless|case|while|until|begin|do",
        "ruby",
        "when",
        "in",
    ),
    _words("crystal", ".cr", "end", "class|module|struct|def|macro|if|unless|case|while|until|begin|do", "", "when", "in"),
    _words("elixir", ".ex .exs", "end", "do|fn"),
    _words("lua", ".lua", "end until", "function|then|do|repeat"),
    _words("julia", ".jl", "end", "function|struct|module|if|for|while|let|begin|do|try|macro|quote"),
    _words("shellscript", ".sh .bash .zsh .ksh .bats", "fi done esac ;;", "if|do|case", "bash"),
    _words("fish", ".fish", "end", "function|if|for|while|switch|begin"),
    _words("vim", ".vim", "endif endfunction endfor endwhile endtry augroup endfunc", "if|function|for|while|try"),
    _words("cmake", ".cmake CMakeLists.txt", "endif endforeach endfunction endmacro endwhile", "if|foreach|function|macro"),
    _words("makefile", ".mk .mak Makefile GNUmakefile makefile", "endif endef", "ifeq|ifneq|ifdef|ifndef|define", "make"),
    _words("erlang", ".erl .hrl", "end", "begin|case|if|receive|fun|try"),
    _words("pascal", ".pas", "end", "begin|case|record|try", "pascal"),
    _words("vb", ".vb", "End", "If|Sub|Function|Class|Module", "vb.net"),
    _words("fortran-modern", ".f90 .f95", "end", "program|module|subroutine|function|do|if", "fortran"),
    Language("latex", (".tex", ".sty", ".cls"), "", ("\\end{",), labels=("\\item",)),
    _markup("html", ".html .htm .xhtml", "html"),
    _markup("vue", ".vue", "vue"),
    _markup("svelte", ".svelte"),
    _markup("xml", ".xml .svg .xsd .xsl .csproj .plist", "xml"),
    _markup("handlebars", ".hbs"),
    _markup("jinja-html", ".jinja .j2"),
    _markup("erb", ".erb"),
    Language("perl", (".pl", ".pm", ".t"), "perl"),
    Language("r", (".r", ".R"), "r", balanced=True),
    Language("sql", (".sql",), "sql"),
    Language("powershell", (".ps1", ".psm1"), "powershell", joining=("{",)),
    Language("bat", (".bat", ".cmd"), "bat"),
    Language("clojure", (".clj", ".cljs", ".cljc", ".edn"), "clojure"),
    Language("lisp", (".lisp", ".el"), "common-lisp"),
    Language("scheme", (".scm", ".ss"), "scheme"),
    Language("ocaml", (".ml", ".mli"), "ocaml"),
    Language("nix", (".nix",), "nix"),
    Language("dockerfile", (".dockerfile", "Dockerfile", "Containerfile"), "docker"),
    Language("toml", (".toml",), "toml"),
    Language("ini", (".ini", ".cfg", ".properties"), "ini"),
    Language("diff", (".diff", ".patch"), "diff"),
    _spaced("yaml", ".yaml .yml", "yaml", "- ", closers=_END_WORDS),
    _spaced("markdown", ".md .markdown", closers=_END_WORDS),
    _spaced("restructuredtext", ".rst", closers=_END_WORDS),
    _spaced("plaintext", ".txt"),
    _spaced("git-commit", "COMMIT_EDITMSG"),
    _spaced("scminput", ""),  # VS Code's input of a commit message
    _spaced("haskell", ".hs .lhs", "haskell"),
    _spaced("fsharp", ".fs .fsx .fsi", "fsharp"),
    _spaced("elm", ".elm", "elm"),
    _spaced("nim", ".nim", "nim"),
    _spaced("coffeescript", ".coffee", "coffeescript"),
    _spaced("jade", ".pug .jade", "pug"),
    _spaced("sass", ".sass", "sass"),
    _spaced("haml", ".haml", "haml"),
)
