"""Parameters whose values here are old, because another pipeline has trained them in another process."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from . import _training

ConfigError = _training.ConfigError


class _Record:
    """Versions of a pipeline's parameters when all processes had equal values. Frees no parameter late."""

    def __init__(self, every: Sequence[nn.Parameter], own: set[int]) -> None:
        self.versions = WeakIdKeyDictionary({parameter: parameter._version for parameter in every})
        self._own = WeakIdKeyDictionary({parameter: True for parameter in every if id(parameter) in own})

    def has_changed(self) -> bool:
        """Returns whether this process has other values since, and so do others."""
        return any(self.versions[parameter] != parameter._version for parameter in self._own)

    def is_old(self, parameter: nn.Parameter) -> bool:
        is_of_others = parameter in self.versions and parameter not in self._own
        return is_of_others and bool(self.versions[parameter] == parameter._version)


class Freshness:
    """Finds parameters of a pipeline that another pipeline over the same layers trains in another process."""

    _records: list[_Record] = []  # Of all pipelines, also of freed ones, as long as their layers exist

    def __init__(self, own: set[int], layers: Sequence[tuple[str, nn.Module]]) -> None:
        """`own`: ids of the parameters that this process trains. `layers`: all, with words for messages. Raises
        ConfigError as require() does."""
        named = [(words, p) for words, layer in layers for p in layer.parameters() if p.requires_grad]
        self._own = [(words, parameter) for words, parameter in named if id(parameter) in own]
        self._every = [parameter for _, parameter in named]
        self._record = _Record(self._every, own)
        self.require()
        Freshness._records = [*(each for each in Freshness._records if len(each.versions)), self._record]

    def note(self) -> None:
        """Notes that all processes have equal values now."""
        for record in Freshness._records:
            record.versions.update({each: each._version for each in self._every if each in record.versions})

    def require(self) -> None:
        """Raises ConfigError if a parameter of this process was trained in another one."""
        for record in Freshness._records:
            if record is self._record or not record.has_changed():
                continue
            for words, parameter in self._own:
                if record.is_old(parameter):
                    raise ConfigError(
                        f"{words}: another pipeline has trained it in another process, so its values here are old; "
                        "call gather() of that pipeline first"
                    )
