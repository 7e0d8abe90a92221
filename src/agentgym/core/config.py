"""The settings of a training run, and where each comes from."""

from __future__ import annotations

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
    ValidationError,
    field_validator,
)

from agentgym.core.options import (
    PolicyOptions,
    check_names,
    checked_options,
    config_error,
    read_settings,
)
from agentgym.errors import ConfigError
from agentgym.utils.files import atomic_write_text

Source = Literal["user", "engine", "scenario", "policy", "default"]

_HERE = ("auto", "local")
_OF_POLICIES = {"model", "free_form_tasks"}
"""Fields that only some policies read: those that have them in `policy_options`."""


def _setting(
    default: Any,
    metavar: str,
    description: str,
    *,
    flag: str | None = None,
    tuned: bool = False,
    **limits: Any,
) -> Any:
    """A field that documents itself, for people and for the command line.

    Args:
        default: Its value, unless set.
        metavar: Stands for its value in help texts.
        description: Its help text.
        flag: Its option, if it isn't named like the field.
        tuned: Whether policies or scenarios often bring a better default.
        limits: Limits, as for pydantic's `Field`.
    """
    extra: dict[str, Any] = {"metavar": metavar}
    extra |= {"flag": flag} if flag else {}
    extra |= {"tuned": True} if tuned else {}
    return Field(default, description=description, json_schema_extra=extra, **limits)


class TrainingConfig(BaseModel):
    """What to train, on what, and how.

    Extra fields are allowed: they are options of the scenario or the policy.
    `resolve` rejects those that neither reads.

    Each field documents itself; see `_setting`.
    """

    model_config = ConfigDict(extra="allow", validate_assignment=True)

    scenario: Annotated[str, Field(min_length=1)] = Field(
        description="Scenario to train on: a name, or module:Class.",
        json_schema_extra={"metavar": "NAME"},
    )
    policy: str = _setting(
        "planner",
        "NAME",
        "Policy to train: planner, llm, or one from an installed package.",
        min_length=1,
        tuned=True,
    )
    model: str | None = _setting(
        None,
        "NAME",
        "Language model for policies that use one: smollm2-135m, a name on the "
        "Hugging Face hub, or a folder. Default: smollm2-135m.",
        min_length=1,
    )
    engine: str = _setting(
        "local",
        "NAME",
        "Training algorithm: local, trl, or one from an installed package.",
        min_length=1,
    )
    episodes: int = _setting(
        10_000, "N", "Maximum number of training episodes.", gt=0, tuned=True
    )
    gpu_provider: Literal["auto", "local", "runpod", "lambda"] = _setting(
        "auto", "NAME", "Where GPUs come from, for engines that use them.", flag="--gpu"
    )
    learning_rate: FiniteFloat = _setting(
        3e-4, "X", "Learning rate at the start of training.", gt=0, tuned=True
    )
    learning_rate_decay: FiniteFloat = _setting(
        0.9,
        "SHARE",
        "Share of the learning rate removed, linearly, by the end of training.",
        ge=0,
        le=1,
    )
    discount_factor: FiniteFloat = _setting(
        0.95, "X", "How much a reward counts for the step before it.", gt=0, lt=1
    )
    group_size: int = _setting(
        8, "N", "Episodes per task, compared with each other.", ge=2, tuned=True
    )
    batch_size: int = _setting(
        16, "N", "Maximum number of tasks per update.", ge=1, tuned=True
    )
    revisit: FiniteFloat = _setting(
        0.33,
        "SHARE",
        "Share of each batch for earlier tasks, failed ones first.",
        ge=0,
        lt=1,
        tuned=True,
    )
    credit: Literal["state", "broadcast"] = _setting(
        "state",
        "state|broadcast",
        "Compare episodes of a task at the same state, or as a whole.",
    )
    exploration: FiniteFloat = _setting(
        0.1,
        "SHARE",
        "Share of random decisions at the start of training.",
        ge=0,
        lt=1,
        tuned=True,
    )
    exploration_decay: FiniteFloat = _setting(
        0.8,
        "SHARE",
        "Share of the exploration removed, linearly, by the end of training.",
        ge=0,
        le=1,
    )
    entropy: FiniteFloat = _setting(
        0.02,
        "X",
        "Weight of the entropy bonus at the start of training.",
        ge=0,
        tuned=True,
    )
    entropy_decay: FiniteFloat = _setting(
        1.0,
        "SHARE",
        "Share of the entropy bonus removed, linearly, by the end of training.",
        ge=0,
        le=1,
    )
    seed: int = _setting(
        0,
        "N",
        "Random seed. The same seed gives the same trained weights.",
        ge=0,
        le=2**32 - 1,
    )
    eval_every: int = _setting(
        1280, "N", "Episodes between evaluations.", gt=0, tuned=True
    )
    eval_tasks: int = _setting(
        200, "N", "Validation tasks per evaluation during training.", gt=0, tuned=True
    )
    heldout_tasks: int = _setting(
        400, "N", "Held-out tasks in the final evaluation.", gt=0, tuned=True
    )
    free_form_tasks: int = _setting(
        40,
        "N",
        "Held-out tasks on which a language model is also measured without "
        "constrained decoding.",
        gt=0,
    )
    target_reliability: FiniteFloat | None = _setting(
        None,
        "SHARE",
        "Stop early once the 95% interval of validation reliability is above "
        "this. Default: the scenario's target.",
        gt=0,
        le=1,
    )
    failure_budget: FiniteFloat = _setting(
        0.1,
        "SHARE",
        "Stop with an error if more than this share of episodes crashes.",
        ge=0,
        le=1,
    )
    max_steps: int = _setting(
        10, "N", "Maximum number of decisions per episode.", gt=0, tuned=True
    )
    max_mistakes: int | None = _setting(
        None,
        "N",
        "End a training episode after this many wrong decisions.",
        gt=0,
        tuned=True,
    )
    tool_timeout: FiniteFloat = _setting(
        10.0, "SECONDS", "Maximum seconds per tool call.", gt=0
    )
    agent: str | None = _setting(
        None,
        "MODULE:FUNCTION",
        "Train your own agent: module:function. Separate several with commas.",
        min_length=1,
    )
    agent_command: str | None = _setting(
        None,
        "COMMAND",
        "Train an agent that runs as a command. Can be combined with agent.",
        min_length=1,
    )
    framework: Literal["langchain", "autogen", "crewai"] | None = _setting(
        None,
        "NAME",
        "Train a default agent of this framework (langchain, autogen or crewai) "
        "with the scenario's tools. Can be combined with agent.",
    )
    agent_concurrency: int = _setting(
        8, "N", "Maximum number of agents running at the same time.", gt=0
    )
    agent_timeout: FiniteFloat = _setting(
        120.0, "SECONDS", "Maximum seconds per episode of an agent.", gt=0
    )
    components: Annotated[list[str], Field(min_length=1)] | None = _setting(
        None,
        "A,B",
        "Components to train, for example tool_selection. Default: those the "
        "scenario declares.",
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] | None = (
        _setting(
            None, "NAME", "Name of the trained model. Default: the scenario's name."
        )
    )
    manual_hours: FiniteFloat = _setting(
        4.0,
        "HOURS",
        "Hours of manual prompt tuning that a training replaces, used to report "
        "time savings.",
        gt=0,
    )

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        # Python and YAML read yes and true as the number 1.
        if isinstance(value, bool):
            raise ValueError("should be a value, not true or false")
        return value

    @field_validator("components")
    @classmethod
    def _known_components(cls, value: list[str] | None) -> list[str] | None:
        # Imported late: the policies import numpy.
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
        """How many agents replace the built-in loop; 0 if it plays itself."""
        others = (self.agent_command, self.framework)
        return len(self.agent_names) + sum(other is not None for other in others)

    def options_of(self, names: Iterable[str]) -> dict[str, Any]:
        """The settings with these names that are set.

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
        """Checks what the user set, before any of the user's code is loaded.

        Returns:
            The options of the policy and those of the scenario, with defaults.

        Raises:
            ConfigError: A setting is unknown, or an option is invalid.
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
            A config with final values, whose `sources` name where each comes from.

        Raises:
            ConfigError: A setting is unknown, or a default is invalid.
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
                check_names(layer, fields, f"training default of the {source}")
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
        """All settings as plain JSON, with `sources`."""
        return {**self.model_dump(mode="json"), "sources": self.sources}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Reads what `to_dict` wrote, or any mapping of settings.

        Raises:
            ConfigError: A setting is missing or invalid.
        """
        return cls._read(values, "")

    def to_yaml(self, path: Path | str) -> None:
        """Writes all settings; comments say who set what the user didn't."""
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
            ConfigError: The file can't be read, or a setting is missing or invalid.
        """
        return cls._read(read_settings(Path(path)), str(path))

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
