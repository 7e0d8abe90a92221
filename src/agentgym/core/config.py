"""The settings of a training run: what was asked, and who set what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from agentgym.errors import ConfigError, did_you_mean
from agentgym.utils.files import atomic_write_text
from agentgym.utils.strict_yaml import load_yaml

Source = Literal["user", "engine", "scenario", "policy", "default"]

_HERE = ("auto", "local")

_PLAIN = {
    "missing": "is required",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "string_type": "should be text",
    "list_type": "should be a list",
    "too_short": "should not be empty",
    "string_too_short": "should not be empty",
    "string_pattern_mismatch": "should be letters, digits, '.', '_' and '-', "
    "beginning with a letter or digit",
}
"""What pydantic's kinds of error mean, in plain words; others keep its own."""


class PolicyOptions(BaseModel):
    """The settings that only one policy reads: subclass it, and describe each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class TrainingConfig(BaseModel):
    """What to train, on what, and how.

    Extra fields are allowed: they are options of the scenario or the policy.
    `resolve` rejects those that neither reads.

    Each field documents itself: `description` is also its help text on the command
    line. `json_schema_extra` holds `metavar`; `flag`, if its option isn't called like
    the field; `tuned`, if policies or scenarios often bring a better default than the
    one here; and `policy`, if only some policies read it.
    """

    model_config = ConfigDict(extra="allow", validate_assignment=True)

    scenario: Annotated[str, Field(min_length=1)] = Field(
        description="Scenario to train on: a name, or module:Class.",
        json_schema_extra={"metavar": "NAME"},
    )
    policy: str = Field(
        "planner",
        min_length=1,
        description="Policy to train: planner, llm, or one from an installed package.",
        json_schema_extra={"metavar": "NAME", "tuned": True},
    )
    model: str | None = Field(
        None,
        min_length=1,
        description="Language model for policies that use one: smollm2-135m, a name "
        "on the Hugging Face hub, or a folder. Default: smollm2-135m.",
        json_schema_extra={"metavar": "NAME", "policy": True},
    )
    engine: str = Field(
        "local",
        min_length=1,
        description="Training algorithm: local, trl, or one from an installed package.",
        json_schema_extra={"metavar": "NAME"},
    )
    episodes: int = Field(
        10_000,
        gt=0,
        description="Maximum number of training episodes.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    gpu_provider: Literal["auto", "local", "runpod", "lambda"] = Field(
        "auto",
        description="Where GPUs come from, for engines that use them.",
        json_schema_extra={"metavar": "NAME", "flag": "--gpu"},
    )
    learning_rate: FiniteFloat = Field(
        3e-4,
        gt=0,
        description="Learning rate at the start of training.",
        json_schema_extra={"metavar": "X", "tuned": True},
    )
    learning_rate_decay: FiniteFloat = Field(
        0.9,
        ge=0,
        le=1,
        description="Share of the learning rate removed, linearly, by the end of "
        "training.",
        json_schema_extra={"metavar": "SHARE"},
    )
    discount_factor: FiniteFloat = Field(
        0.95,
        gt=0,
        lt=1,
        description="How much a reward counts for the step before it.",
        json_schema_extra={"metavar": "X"},
    )
    group_size: int = Field(
        8,
        ge=2,
        description="Episodes per task, compared with each other.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    batch_size: int = Field(
        16,
        ge=1,
        description="Maximum number of tasks per update.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    revisit: FiniteFloat = Field(
        0.33,
        ge=0,
        lt=1,
        description="Share of each batch for earlier tasks, failed ones first.",
        json_schema_extra={"metavar": "SHARE", "tuned": True},
    )
    credit: Literal["state", "broadcast"] = Field(
        "state",
        description="Compare episodes of a task at the same state, or as a whole.",
        json_schema_extra={"metavar": "state|broadcast"},
    )
    exploration: FiniteFloat = Field(
        0.1,
        ge=0,
        lt=1,
        description="Share of random decisions at the start of training.",
        json_schema_extra={"metavar": "SHARE", "tuned": True},
    )
    exploration_decay: FiniteFloat = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of the exploration removed, linearly, by the end of "
        "training.",
        json_schema_extra={"metavar": "SHARE"},
    )
    entropy: FiniteFloat = Field(
        0.02,
        ge=0,
        description="Weight of the entropy bonus at the start of training.",
        json_schema_extra={"metavar": "X", "tuned": True},
    )
    entropy_decay: FiniteFloat = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the entropy bonus removed, linearly, by the end of "
        "training.",
        json_schema_extra={"metavar": "SHARE"},
    )
    seed: int = Field(
        0,
        ge=0,
        le=2**32 - 1,
        description="Random seed. The same seed gives the same trained weights.",
        json_schema_extra={"metavar": "N"},
    )
    eval_every: int = Field(
        1280,
        gt=0,
        description="Episodes between evaluations.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    eval_tasks: int = Field(
        200,
        gt=0,
        description="Validation tasks per evaluation during training.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    heldout_tasks: int = Field(
        400,
        gt=0,
        description="Held-out tasks in the final evaluation.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    free_form_tasks: int = Field(
        40,
        gt=0,
        description="Held-out tasks on which a language model is also measured "
        "without constrained decoding.",
        json_schema_extra={"metavar": "N", "policy": True},
    )
    target_reliability: FiniteFloat | None = Field(
        None,
        gt=0,
        le=1,
        description="Stop early once the 95% interval of validation reliability is "
        "above this. Default: the scenario's target.",
        json_schema_extra={"metavar": "SHARE"},
    )
    failure_budget: FiniteFloat = Field(
        0.1,
        ge=0,
        le=1,
        description="Stop with an error if more than this share of episodes crashes.",
        json_schema_extra={"metavar": "SHARE"},
    )
    max_steps: int = Field(
        10,
        gt=0,
        description="Maximum number of decisions per episode.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    max_mistakes: int | None = Field(
        None,
        gt=0,
        description="End a training episode after this many wrong decisions.",
        json_schema_extra={"metavar": "N", "tuned": True},
    )
    tool_timeout: FiniteFloat = Field(
        10.0,
        gt=0,
        description="Maximum seconds per tool call.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    agent: str | None = Field(
        None,
        min_length=1,
        description="Train your own agent: module:function. Separate several with "
        "commas.",
        json_schema_extra={"metavar": "MODULE:FUNCTION"},
    )
    agent_command: str | None = Field(
        None,
        min_length=1,
        description="Train an agent that runs as a command. Can be combined with "
        "agent.",
        json_schema_extra={"metavar": "COMMAND"},
    )
    framework: Literal["langchain", "autogen", "crewai"] | None = Field(
        None,
        description="Train a default agent of this framework (langchain, autogen or "
        "crewai) with the scenario's tools. Can be combined with agent.",
        json_schema_extra={"metavar": "NAME"},
    )
    agent_concurrency: int = Field(
        8,
        gt=0,
        description="Maximum number of agents running at the same time.",
        json_schema_extra={"metavar": "N"},
    )
    agent_timeout: FiniteFloat = Field(
        120.0,
        gt=0,
        description="Maximum seconds per episode of an agent.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    components: Annotated[list[str], Field(min_length=1)] | None = Field(
        None,
        description="Components to train, for example tool_selection. Default: those "
        "the scenario declares.",
        json_schema_extra={"metavar": "A,B"},
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] | None = (
        Field(
            None,
            description="Name of the trained model. Default: the scenario's name.",
            json_schema_extra={"metavar": "NAME"},
        )
    )
    manual_hours: FiniteFloat = Field(
        4.0,
        gt=0,
        description="Hours of manual prompt tuning that a training replaces, used to "
        "report time savings.",
        json_schema_extra={"metavar": "HOURS"},
    )

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        # Python and YAML take yes and true for the number 1.
        if isinstance(value, bool):
            raise ValueError("should be a value, not true or false")
        return value

    @field_validator("components")
    @classmethod
    def _known_components(cls, value: list[str] | None) -> list[str] | None:
        # Imported late: the policies bring numpy along.
        from agentgym.core.components import COMPONENTS

        for name in value or ():
            if name not in COMPONENTS:
                raise ValueError(
                    f"should be among {', '.join(COMPONENTS)}, not '{name}'"
                )
        return value

    @property
    def sources(self) -> dict[str, Source]:
        """Who set each field: "user", "engine", "scenario", "policy" or "default"."""
        names = [*type(self).model_fields, *(self.model_extra or {})]
        return {
            name: "user"
            if name in self.model_fields_set
            else self._sources.get(name, "default")
            for name in names
        }

    @property
    def agent_names(self) -> list[str]:
        """The agents in `agent`."""
        return [part.strip() for part in (self.agent or "").split(",") if part.strip()]

    @property
    def agent_count(self) -> int:
        """How many play in the place of the built-in loop; 0 if it plays itself."""
        others = (self.agent_command, self.framework)
        return len(self.agent_names) + sum(other is not None for other in others)

    def options_of(self, names: Iterable[str]) -> dict[str, Any]:
        """The settings of these names, as far as they are set.

        Args:
            names: What a scenario (`options`) or a policy (`policy_options`) reads.
        """
        known = dict(self)
        return {name: known[name] for name in names if known.get(name) is not None}

    def read_options(
        self,
        scenario_options: Mapping[str, Any],
        engine_defaults: Mapping[str, Any] = {},
        policy_options: type[PolicyOptions] = PolicyOptions,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Checks what the user set, before anything of the user's is loaded.

        Returns:
            The options of the policy and those of the scenario, with defaults.

        Raises:
            ConfigError: Nothing reads a setting, or an option is wrong.
        """
        fields = type(self).model_fields
        if self.gpu_provider not in _HERE:
            raise ConfigError(
                f"Engine '{self.engine}' can't use GPUs of '{self.gpu_provider}'. "
                "Set gpu_provider to auto or local."
            )
        if not self.agent_count:
            for name in ("agent_concurrency", "agent_timeout"):
                if name in self.model_fields_set:
                    raise ConfigError(
                        f"{name} has no effect without an agent. Set agent, "
                        "agent_command or framework, or omit it."
                    )
        own = self._policy_options(policy_options)
        policy = self.policy
        if "policy" not in self.model_fields_set:
            policy = engine_defaults.get("policy", policy)
        for name in sorted(self._set_by_user & _OF_POLICIES - set(own)):
            raise ConfigError(
                f"Policy '{policy}' doesn't use '{name}'. Choose another policy, or "
                f"omit '{name}'."
            )
        for name in sorted(set(own) & set(scenario_options)):
            raise ConfigError(
                f"Both policy '{policy}' and scenario '{self.scenario}' have an option "
                f"'{name}'. Rename the scenario's."
            )
        given = self.model_extra or {}
        options = checked_options(
            scenario_options,
            {n: v for n, v in given.items() if n not in own},
            known={*fields, *own},
            where="setting",
        )
        return own, options

    def resolve(
        self,
        scenario_defaults: Mapping[str, Any],
        policy_defaults: Mapping[str, Any],
        scenario_options: Mapping[str, Any],
        engine_defaults: Mapping[str, Any] = {},
        policy_options: type[PolicyOptions] = PolicyOptions,
    ) -> TrainingConfig:
        """The settings in force: the user's, else the scenario's, else the policy's.

        Args:
            scenario_defaults: `Scenario.training_defaults()`.
            policy_defaults: `Policy.training_defaults`.
            scenario_options: `Scenario.options`: what the scenario reads beyond the
                fields of this class, with defaults.
            engine_defaults: `Engine.training_defaults`; only the user's win over them.
            policy_options: `Policy.policy_options`.

        Returns:
            A config whose every value is final, and whose `sources` say who set it.

        Raises:
            ConfigError: Nothing reads a setting, or a default is wrong.
        """
        fields = type(self).model_fields
        own, options = self.read_options(
            scenario_options, engine_defaults, policy_options
        )
        values: dict[str, Any] = {}
        sources: dict[str, Source] = {}
        layers: tuple[tuple[Source, Mapping[str, Any]], ...] = (
            ("policy", {n: v for n, v in own.items() if n in fields}),
            ("policy", policy_defaults),
            ("scenario", scenario_defaults),
            ("engine", engine_defaults),
            ("user", {name: getattr(self, name) for name in self._set_by_user}),
        )
        for source, layer in layers:
            if source != "user":
                _check_names(layer, fields, f"training default of the {source}")
            values |= layer
            sources |= dict.fromkeys(layer, source)
        options |= {n: v for n, v in own.items() if n not in fields}
        values["scenario"] = self.scenario
        try:
            valid = TrainingConfig.model_validate(values)
        except ValidationError as error:
            raise config_error(error, "training defaults") from None
        resolved = TrainingConfig.model_construct(
            _fields_set=set(self.model_fields_set),
            **{name: getattr(valid, name) for name in fields},
            **options,
        )
        resolved._sources = {k: v for k, v in sources.items() if v != "user"}
        return resolved

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON can hold them, with `sources`."""
        return {**self.model_dump(mode="json"), "sources": self.sources}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Reads what `to_dict` wrote, or any mapping of settings.

        Raises:
            ConfigError: A setting is missing or wrong.
        """
        return cls._read(values, "")

    def to_yaml(self, path: Path | str) -> None:
        """Writes all settings; a comment says who set what the user did not."""
        sources = self.sources
        lines = []
        for name, value in self.model_dump(mode="json").items():
            text = yaml.safe_dump({name: value}, allow_unicode=True, width=10**6)
            if yaml.safe_load(text) != {name: value}:
                # Some line breaks of Unicode only survive escaped.
                text = yaml.safe_dump({name: value}, width=10**6)
            single = text.count("\n") == 1 and sources[name] != "user"
            lines.append(f"{text[:-1]}  # {sources[name]}\n" if single else text)
        try:
            atomic_write_text(path, "".join(lines))
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}."
            ) from None

    @classmethod
    def from_yaml(cls, path: Path | str) -> TrainingConfig:
        """Reads a file of settings, one `name: value` on a line.

        Raises:
            ConfigError: The file cannot be read, or a setting is missing or wrong.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read: {error.strerror or error}."
            ) from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} isn't UTF-8 text.") from None
        try:
            values = load_yaml(text)
        except ValueError as error:
            raise ConfigError(f"{path} isn't valid YAML: {error}") from None
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise ConfigError(
                f"{path} should hold settings, one 'name: value' on a line, not "
                f"{_kind(values)}."
            )
        return cls._read(values, str(path))

    def _policy_options(self, policy_options: type[PolicyOptions]) -> dict[str, Any]:
        """The policy's own settings: the user's, else defaults."""
        given = {*self._set_by_user, *(self.model_extra or {})}
        known = given & set(policy_options.model_fields)
        try:
            made = policy_options.model_validate(self.options_of(known))
        except ValidationError as error:
            raise config_error(error) from None
        return made.model_dump()

    @property
    def _set_by_user(self) -> set[str]:
        return self.model_fields_set & set(type(self).model_fields)

    @classmethod
    def _read(cls, values: Mapping[str, Any], where: str) -> TrainingConfig:
        prefix = f"{where}: " if where else ""
        for name in values:
            if not isinstance(name, str):
                raise ConfigError(f"{prefix}setting {name!r} should be a name.")
        given = dict(values)
        sources = given.pop("sources", {})
        if not isinstance(sources, Mapping):
            raise ConfigError(f"{prefix}sources should be a mapping of names.")
        try:
            config = cls.model_validate(given)
        except ValidationError as error:
            raise config_error(error, where) from None
        for name in set(given):
            source = sources.get(name, "user")
            if source == "user":
                continue
            config.model_fields_set.discard(name)
            if source != "default":
                config._sources[name] = source
        return config


_OF_POLICIES = {
    name
    for name, field in TrainingConfig.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and "policy" in field.json_schema_extra
}
"""Fields that only some policies read."""


def checked_options(
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    known: Iterable[str] = (),
    where: str = "option",
) -> dict[str, Any]:
    """A scenario's options: the given ones, checked, and defaults for the others.

    Args:
        defaults: The options that the scenario reads.
        given: What the user set.
        known: Further names that a misspelt one may have meant.
        where: What the names are called in messages.

    Raises:
        ConfigError: Nothing reads an option, or its value has the wrong type.
    """
    _check_names(given, {*known, *defaults}, where, unread=set(given) - set(defaults))
    result = dict(defaults)
    for name, value in given.items():
        default = defaults[name]
        if default is None:
            result[name] = value
            continue
        if isinstance(value, bool) is not isinstance(default, bool):
            raise ConfigError(
                f"{name}: should be {_type_name(default)}, got {_shown(value)}."
            )
        try:
            result[name] = TypeAdapter(type(default)).validate_python(value)
        except ValidationError:
            raise ConfigError(
                f"{name}: should be {_type_name(default)}, got {_shown(value)}."
            ) from None
    return result


def config_error(error: ValidationError, where: str = "") -> ConfigError:
    """Says in one line which settings are wrong and what they should be.

    Args:
        error: What pydantic found.
        where: The file or other place that the settings come from.
    """
    problems = []
    for detail in error.errors(include_url=False):
        field = ".".join(str(part) for part in detail["loc"]) or "settings"
        kind = detail["type"]
        text = re.sub(r"^(Input|Value error,|List|String) ", "", detail["msg"])
        text = _PLAIN.get(kind, text).rstrip(".")
        if kind not in ("missing", "value_error"):
            text += f", got {_shown(detail['input'])}"
        problems.append(f"{field}: {text}")
    prefix = f"{where}: " if where else ""
    return ConfigError(" ".join(f"{prefix}{'; '.join(problems)}.".split()))


def _check_names(
    given: Iterable[str],
    known: Iterable[str],
    where: str,
    unread: set[str] | None = None,
) -> None:
    known = list(known)
    unknown = set(given) - set(known) if unread is None else unread
    if unknown:
        raise ConfigError(
            " ".join(
                f"Unknown {where} '{name}'.{did_you_mean(name, known)}"
                for name in sorted(unknown)
            )
        )


def _type_name(default: Any) -> str:
    names: dict[type, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
    }
    return names.get(type(default), _kind(default))


def _kind(value: Any) -> str:
    names: dict[type, str] = {str: "text", dict: "mapping"}
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
