"""The half of the store that keeps models.

A version is there for others when its row is registered and its folder is published.
Publishing is the last step, so an earlier failure leaves nothing visible.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.errors import ConfigError, ModelNotFoundError, StoreError
from agentgym.store import processes
from agentgym.store.artifacts import ArtifactStore, draft_of
from agentgym.store.files import file_errors
from agentgym.store.rows import ModelDraft, ModelRow, ModelVersion, split_reference

if TYPE_CHECKING:
    from agentgym.store.database import Database

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class ModelRegistry:
    """Models with versions; `Store` supplies the database and the folder."""

    models_dir: Path
    artifacts: ArtifactStore
    _database: Database

    @contextlib.contextmanager
    def reserve_model(
        self, name: str, *, run_id: str | None = None
    ) -> Iterator[ModelDraft]:
        """Reserves the next version of a model and publishes it at the block's end.

            with store.reserve_model("customer_support", run_id=run_id) as draft:
                policy.save(draft.folder)
                draft.metadata["version"] = draft.version
            model = store.get_model(draft.full_name)

        Two processes never get the same version. If the block raises, the version is
        given back. If the process dies, the draft stays invisible, and
        the next reservation deletes it.

        Args:
            name: Letters, digits, "_", "-" and "."; no version.
            run_id: The run that made it.

        Yields:
            The draft, with its version and an empty folder to fill.

        Raises:
            ConfigError: The name isn't valid.
            StoreError: The model could not be published.
        """
        if not _MODEL_NAME.fullmatch(name) or split_reference(name)[1] is not None:
            raise ConfigError(
                f"Invalid model name '{name}'. Use up to 100 letters, digits,"
                " '_', '-' and '.', and omit the version."
            )
        with file_errors(self.models_dir):
            self.models_dir.mkdir(parents=True, exist_ok=True)
            minor = self._reserve(name, run_id)
        path = self._path(name, minor)
        draft = ModelDraft(name, minor, draft_of(path), path)
        try:
            with file_errors(draft.folder):
                draft.folder.mkdir()
            yield draft
            with file_errors(draft.folder):
                self._publish(draft)
        except BaseException:
            # The folder first: once the version is free, another process may use it.
            shutil.rmtree(draft.folder, ignore_errors=True)
            # The caller needs the first error.
            with contextlib.suppress(StoreError, OSError):
                if draft.full_name not in self._models.list():
                    with self._database.write() as queries:
                        queries.drop_version(name, minor)
            raise

    def register_model(
        self, name: str, *, run_id: str | None, path: Path, metadata: dict[str, Any]
    ) -> ModelRow:
        """Copies a model's folder into the store as the next version of `name`.

        For a model that exists somewhere already. One that is yet to be written needs
        no copy: see `reserve_model`.

        Raises:
            ConfigError: The name isn't valid.
            StoreError: The folder could not be copied.
        """
        with self.reserve_model(name, run_id=run_id) as draft:
            with file_errors(path):
                try:
                    shutil.copytree(path, draft.folder, dirs_exist_ok=True)
                except shutil.Error as error:
                    _, target, reason = error.args[0][0]
                    raise StoreError(f"Cannot write {target}: {reason}.") from error
            draft.metadata.update(metadata)
        return self.get_model(draft.full_name)

    def get_model(self, ref: str) -> ModelRow:
        """Finds a model.

        Args:
            ref: "customer_support" for its newest version, "customer_support_v1.2" or
                "customer_support:v1.2" for one version.

        Raises:
            ModelNotFoundError: No such model; the message lists the available ones.
        """
        name, minor = split_reference(ref)
        models = self.list_models()
        fitting = [m for m in models if m.name == name and minor in (None, m.minor)]
        if not fitting:
            raise ModelNotFoundError(ref, [model.full_name for model in models])
        model = fitting[-1]
        with file_errors(model.path):
            self._models.fetch(model.full_name, model.path)
        return model

    def list_models(self) -> list[ModelRow]:
        """Returns all models, by name and version.

        Their folders need not be on this machine yet: `get_model` brings one.
        """
        with self._database.read() as queries:
            models = queries.models(self.models_dir)
        with file_errors(self.models_dir):
            there = set(self._models.list())
        return [model for model in models if model.full_name in there]

    def delete_model(self, ref: str) -> None:
        """Deletes one version of a model, folder and all. Its number is not reused.

        Raises:
            ModelNotFoundError: No model has that name and version.
        """
        model = self.get_model(ref)
        with file_errors(model.path), self._database.write() as queries:
            queries.lock()
            queries.mark_model_deleted(model.name, model.minor)
            # Readers see the complete model or none, never part of it.
            self._models.delete(model.full_name)
            shutil.rmtree(model.path, ignore_errors=True)

    def _reserve(self, name: str, run_id: str | None) -> int:
        with self._database.write() as queries:
            queries.lock()
            taken = set()
            for row in queries.model_claims():
                if not processes.is_gone(row["pid"], row["host"], row["process"]):
                    taken.add(draft_of(self._path(row["name"], row["minor"])))
                elif row["state"] == "reserved":
                    queries.drop_version(row["name"], row["minor"])
            minor = max(queries.last_minor(name), self._last_minor_there(name)) + 1
            queries.insert_model(name, minor, run_id, processes.columns(os.getpid()))
            # Still inside the transaction: no process can reserve one of these now.
            for leftover in set(self.models_dir.glob(".*.draft")) - taken:
                shutil.rmtree(leftover, ignore_errors=True)
        return minor

    def _publish(self, draft: ModelDraft) -> None:
        with self._database.write() as queries:
            if not queries.register_model(draft.name, draft.minor, draft.metadata):
                raise StoreError(
                    f"The reservation of {draft.full_name} has expired. Save it again."
                )
        self._models.publish(draft.folder, draft.full_name)

    @property
    def _models(self) -> ArtifactStore:
        return self.artifacts.within("models")

    def _path(self, name: str, minor: int) -> Path:
        return self.models_dir / ModelVersion(name, minor).full_name

    def _last_minor_there(self, name: str) -> int:
        """Folders outlive a database that was deleted."""
        versions = [
            minor
            for folder in self._models.list()
            for found, minor in [split_reference(folder)]
            if found == name and minor is not None
        ]
        return max(versions, default=-1)
