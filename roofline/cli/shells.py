"""How shells ask for completions and are told them.

click's own scripts do not do for names such as ``timm:resnet50``: bash takes such a name for three
words, bash and zsh put a space behind ``timm:``, and no shell completes ``--option=value``.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from roofline.errors import InputError, nearest

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' kind value
    COMPREPLY=()
    while read -r kind && read -r value; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            *) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$1" \
COMP_WORDBREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete "$1" 2>/dev/null)
    # What more must follow stands right behind these.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:/=] ]] && compopt -o nospace
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a response plain open
    local kind value about
    (( ! $+commands[%(prog_name)s] )) && return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s 2>/dev/null)}")

    for kind value about in ${response}; do
        case $kind in
            file) _path_files -f ;;
            dir) _path_files -/ ;;
            *) case $value in
                *[:/=]) open+=("$value") ;;
                *) plain+=("$value") ;;
            esac ;;
        esac
    done

    # What more must follow stands right behind these.
    (( $#open )) && compadd -U -V unsorted -S '' -a open
    (( $#plain )) && compadd -U -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


_SPECIAL = re.compile(r"[^\w./:=@%+,-]")
"""Signs that bash does not take for themselves in a word."""


class BashComplete(ShellComplete):
    """bash splits words at ``:`` and ``=`` too, and replaces what is behind the last of these."""

    name = "bash"
    source_template = _BASH
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        # Whatever stands before the command (variables, another command) is not its.
        command = os.environ.get("COMP_WORD", "")
        if command in words:
            words = words[words.index(command) :]
        is_between = line[-1:].isspace() and line[-2:-1] != "\\"
        incomplete = "" if is_between or len(words) < 2 else words.pop()
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        kept = max((incomplete.rfind(sign) + 1 for sign in ":=" if sign in breaks), default=0)
        self._kept = incomplete[:kept]
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        value = _SPECIAL.sub(r"\\\g<0>", str(item.value).removeprefix(self._kept))
        return f"{item.type}\n{value}"


class _WholeWords(ShellComplete):
    """Shells that replace the whole word: of ``--option=value`` click gives the value alone."""

    _option = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        option, equals, _ = incomplete.partition("=")
        self._option = option + equals if equals and option.startswith("-") else ""
        return args, incomplete

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(f"{self._option}{each.value}", type=each.type, help=each.help)
            for each in super().get_completions(args, incomplete)
        ]


class WholeZshComplete(_WholeWords, ZshComplete):
    """zsh, without a space behind names that are to be continued."""

    source_template = _ZSH

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type}\n{item.value}\n{item.help or '_'}"


class WholeFishComplete(_WholeWords, FishComplete):
    """fish; it sees itself which names are to be continued."""


_ENVIRONMENT = {
    "bash": ("COMP_LINE",),
    "zsh": ("COMP_WORDS", "COMP_CWORD"),
    "fish": ("COMP_WORDS", "COMP_CWORD"),
}
"""What each shell says in the environment when it asks for completions."""


def check_request(variable: str) -> None:
    """Refuses what no shell asks; click would fail on it, or end without a word.

    Args:
        variable: the environment variable that holds the request, such as ``bash_complete``.

    Raises:
        InputError: an unknown request, or one without what its shell says beside it.
    """
    request = os.environ[variable]
    known = [f"{shell}_{what}" for shell in _ENVIRONMENT for what in ("complete", "source")]
    if request not in known:
        raise InputError(
            f"{variable}={request}: must be one of {', '.join(known)}{nearest(request, known)}"
            " (without it in the environment, roofline runs as usual)"
        )
    shell, _, what = request.partition("_")
    if what == "source":
        return
    for name in _ENVIRONMENT[shell]:
        if name not in os.environ:
            raise InputError(
                f"{variable}={request}: {name} is not in the environment, where {shell} says what"
                f" to complete; to set that up: roofline completion {shell}"
            )
    if shell == "zsh" and not os.environ["COMP_CWORD"].isdecimal():
        raise InputError(
            f"{variable}={request}: COMP_CWORD={os.environ['COMP_CWORD']} is no whole number"
        )


add_completion_class(BashComplete)
add_completion_class(WholeZshComplete)
add_completion_class(WholeFishComplete)
