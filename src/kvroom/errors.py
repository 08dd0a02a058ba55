"""The exceptions that kvroom raises.

    KvroomError
    |-- UsageError            the command, flag or argument is wrong
    |-- ModelError
    |   |-- UnknownModel      no such model, or it may not be read
    |   `-- BadConfig         the model's config.json cannot be used
    |-- DeviceError           the GPU is unknown, ambiguous or absent
    |-- EngineError           the vLLM version or a combination of flags has no rules here
    |-- InstallError          an engine cannot be made: pip, its index, the disk
    |-- ServerError           no server at that address, or none that can be asked
    `-- StoreError            the file of what was learned is damaged, foreign or cannot be written

Each carries what was seen, what is wrong with it and what to do; the CLI prints it as one
message and exits with 2.
"""

from __future__ import annotations

from kvroom.redaction import clean

_LONGEST = 1500
"""Characters of a problem or a cure that are shown: what was given may be of any length."""


def short(text: str, most: int = 120) -> str:
    """``text`` for a message: cut where it is longer than ``most`` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


class KvroomError(Exception):
    """Base of every error meant for a user: ``str(error)`` is the whole message.

    What was given is quoted in it, so secrets are masked, control codes replaced, and long texts cut.
    """

    def __init__(self, problem: str, cure: str = "") -> None:
        problem, cure = _shown(problem), _shown(cure)
        super().__init__(f"{problem}\n{cure}" if cure else problem)
        self.problem = problem
        self.cure = cure


def _shown(text: str) -> str:
    return short(clean(text[: 2 * _LONGEST]), _LONGEST)


class UsageError(KvroomError):
    """A command line, flag or argument that cannot be understood."""


class ModelError(KvroomError):
    """A model that cannot be read."""


class UnknownModel(ModelError):
    """No such model, or no right or no way to read it."""


class BadConfig(ModelError):
    """A config.json that is damaged, hostile or lacks what the arithmetic needs."""


class DeviceError(KvroomError):
    """A GPU name that is unknown or ambiguous, or no GPU where one is needed."""


class EngineError(KvroomError):
    """A vLLM version, or a combination of flags, that vLLM itself would refuse."""


class InstallError(KvroomError):
    """An environment for vLLM's Python code that cannot be made: pip, its index or the disk."""


class ServerError(KvroomError):
    """No server at the address given, none that can be trusted, or none that speaks OpenAI's protocol."""


class StoreError(KvroomError):
    """The file of what was learned: damaged, of another program or a newer kvroom, or not to be read or written."""
