"""What fit has learned of a table's columns, and the encoding of rows by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.impute import MissingIndicator, SimpleImputer

from .._utils.globe import read_places
from .._utils.tables import columns_at, fit_in_columns
from .column_spec import ColumnSpec, FrequentLevels, LevelEncoder, codes_of
from .columns import Column, read_columns
from .row import Row
from .tables import as_dense

if TYPE_CHECKING:
    from .table_encoder import TableEncoder

FORGOTTEN = "forgotten level {}"  # replaces a level that no row has any more


@dataclass(frozen=True)
class TableEncoding:
    """Encode validated columns by the fitted attributes of a :class:`TableEncoder`."""

    specs: list[ColumnSpec]  # of all columns of the table
    encoders: dict[str, Any]  # of the blocks that `_blocks` returns, except texts

    @classmethod
    def of(cls, encoder: TableEncoder) -> TableEncoding:
        """Return the encoding of a fitted encoder."""
        return cls(encoder.features_, encoder.encoders_)

    @classmethod
    def fit(
        cls,
        specs: list[ColumnSpec],
        columns: list[Column],
        max_categories: int,
        min_frequency: float,
        targets: np.ndarray | None,
    ) -> tuple[TableEncoding, np.ndarray]:
        """Return the encoding of training columns, and the encoded columns.

        Targets (n, c) encode the columns that are specified so.
        """
        encoders: dict[str, Any] = {}
        encoding = cls(specs, encoders)
        blocks = encoding._blocks(columns)
        if "numbers" in blocks:
            imputer = SimpleImputer(strategy="median", keep_empty_features=True)
            imputer = imputer.set_output(transform="default")
            _, parts = fit_in_columns(imputer, blocks["numbers"])
            encoders["numbers"] = parts[0]
            parts[0].statistics_ = np.concatenate([part.statistics_ for part in parts])
            parts[0].n_features_in_ = blocks["numbers"].shape[1]
        if "gaps" in blocks and np.isnan(blocks["gaps"]).any():
            indicator = MissingIndicator(error_on_new=False)
            encoders["gaps"] = indicator.set_output(transform="default")
            indicator.fit(blocks["gaps"])
        if "categories" in blocks:
            encoders["categories"] = FrequentLevels().fit(
                blocks["categories"], max_categories, min_frequency
            )
        mean_targets = None
        if targets is not None and "levels" in blocks:
            encoders["levels"] = LevelEncoder()
            mean_targets = encoders["levels"].fit_transform(blocks["levels"], targets)
        return encoding, encoding._encode_blocks(blocks, mean_targets)

    def transform(self, X: Any) -> np.ndarray:
        """Return an encoded table, whose columns are already validated."""
        return self.encode(self.read(X))

    def read(self, X: Any) -> list[Column]:
        """Return the columns of a validated table, with dates in the time zones of fit."""
        time_zones = [spec.column.time_zone for spec in self.specs]
        return list(read_columns(as_dense(X), time_zones, self.ignored))

    def encode(self, columns: list[Column]) -> np.ndarray:
        """Return encoded columns of new rows, (n, n_features_out)."""
        return self._encode_blocks(self._blocks(columns))

    @property
    def ignored(self) -> list[int]:
        """Return the numbers of the columns that are no features."""
        return [j for j, spec in enumerate(self.specs) if spec.is_ignored]

    @property
    def contents(self) -> list[str]:
        """Return descriptions of the columns' contents in fit."""
        return [spec.holds for spec in self.specs]

    def label_of(self, output: int) -> str:
        """Return the name in messages of the input column of an encoded column."""
        return self.specs[self.source[output]].column.label

    @property
    def source(self) -> np.ndarray:
        """Numbers of the columns from which the output columns come, (n_features_out,)."""
        outputs = self.output_names(str(j) for j in range(len(self.specs)))
        return np.array([int(name.partition("_")[0]) for name in outputs])

    def output_names(self, names: Iterable[str]) -> list[str]:
        """Return the names of the output columns, which begin with the names of the sources."""
        specs = [*zip(names, self.specs, strict=True)]
        outputs: list[str] = []
        for name, spec in specs:
            if spec.is_number:
                parts = spec.parts if spec.place is None else spec.place.parts
                outputs += [f"{name}_{part}" for part in parts] or [name]
        if "gaps" in self.encoders:
            marked = [name for name, spec in specs if spec.marks_gaps]
            outputs += [f"{marked[i]}_missing" for i in self.encoders["gaps"].features_]
        for encoder in ("categories", "levels"):
            if encoder in self.encoders:
                encoded = [name for name, spec in specs if spec.level_encoder == encoder]
                outputs += self.encoders[encoder].names(encoded)
        for name, spec in specs:
            if spec.text_features is not None:
                outputs += [f"{name}_{i}" for i in range(spec.text_features.n_outputs or 0)]
        return outputs

    # -- matrices ---------------------------------------------------------------------------

    def _blocks(self, columns: list[Column]) -> dict[str, np.ndarray]:
        """Return the inputs (n, n_inputs) of the encoders, and encoded texts, by name."""
        parts: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        for spec, column in zip(self.specs, columns, strict=True):
            if spec.level_encoder is not None:  # a gap is a level
                parts[spec.level_encoder].append(spec.categories(column)[:, None])
            if spec.place is not None:
                vectors = self.vectors([columns[i] for i in spec.place.pair])
                parts["numbers"].append(spec.place.encode(vectors))
            elif spec.is_number:
                parts["numbers"].append(spec.numbers(column))
            if spec.is_text:
                parts["texts"].append(spec.texts(column))
            if spec.marks_gaps:  # all parts of a date are missing at once
                parts["gaps"].append(parts["numbers"][-1][:, :1])
        return {name: np.hstack(arrays) for name, arrays in parts.items()}

    def _encode_blocks(
        self, blocks: dict[str, np.ndarray], mean_targets: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the joined encoded blocks; `mean_targets` encode the levels of training rows."""
        encoded = []
        for name, encoder in self.encoders.items():
            block = blocks[name]
            if name == "levels" and mean_targets is not None:
                encoded.append(mean_targets)
            # For one row, the checks of both take longer than all the rest.
            elif name == "numbers":
                np.copyto(block, encoder.statistics_, where=np.isnan(block))  # blocks are new
                encoded.append(block)
            elif name == "gaps":
                encoded.append(np.isnan(block)[:, encoder.features_])
            else:
                encoded.append(encoder.transform(block))
        if "texts" in blocks:
            encoded.append(blocks["texts"])
        joined = encoded[0] if len(encoded) == 1 else np.hstack(encoded)  # which copies
        return joined.astype(np.float64, copy=False)

    # -- places -----------------------------------------------------------------------------

    @property
    def pair(self) -> tuple[int, int] | None:
        """Return the numbers of the columns of latitudes and longitudes, or None."""
        return next((spec.place.pair for spec in self.specs if spec.place is not None), None)

    def places(self, X: Any) -> np.ndarray | None:
        """Return places of a validated table as vectors of length 1, (n, 3), or None."""
        if self.pair is None:
            return None
        return self.vectors([*read_columns(columns_at(as_dense(X), [*self.pair]))])

    def vectors(self, pair: list[Column]) -> np.ndarray:
        """Return places as vectors (n, 3), from columns of latitudes and longitudes."""
        assert self.pair is not None
        specs = [self.specs[i] for i in self.pair]
        degrees = [spec.numbers(column)[:, 0] for spec, column in zip(specs, pair, strict=True)]
        return read_places([spec.column.name for spec in specs], degrees)

    # -- levels that are stored -------------------------------------------------------------

    @property
    def categories(self) -> list[int]:
        """Return the numbers of the category columns, or none if the file is too old."""
        if not isinstance(self.encoders.get("categories"), FrequentLevels | None):
            return []  # in a file of version 0.2.0
        return [j for j, spec in enumerate(self.specs) if spec.is_category]

    def _encoder_levels(self) -> dict[int, list[Any]]:
        """Return the stored levels of the encoders, by the number of the column."""
        encoders: dict[int, Any] = {j: self.specs[j].level_encoder for j in self.categories}
        levels = {name: iter(self.encoders[name].levels_) for name in {*encoders.values()}}
        return {j: next(levels[name]) for j, name in encoders.items()}

    def stored_levels(self) -> list[list[Any]]:
        """Return the categories' levels that are stored, by an encoder or as an order."""
        return [
            list(self.specs[j].column.levels or levels)
            for j, levels in self._encoder_levels().items()
        ]

    def level_codes(self, X: Any) -> np.ndarray | None:
        """Return codes of rows' levels in the stored levels, int32 (n, n_categories), or None.

        A level that is not stored has the code -1.
        """
        values = self._read_categories(X)
        return None if values is None else codes_of(self.stored_levels(), values)

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Return whether rows' levels are unknown or rare, bool (n, n_categories), or None."""
        values = self._read_categories(X)
        levels = [*self._encoder_levels().values()]
        return None if values is None else codes_of(levels, values) < 0

    def are_unknown(self, j: int, values: np.ndarray) -> np.ndarray:
        """Return whether levels (n,) of column j are unknown or rare, bool (n,)."""
        return codes_of([self._encoder_levels()[j]], values[:, None])[:, 0] < 0

    def _read_categories(self, X: Any) -> np.ndarray | None:
        """Return the levels of rows, (n, n_categories), or None if there are no categories."""
        if not self.categories:
            return None
        specs = [self.specs[j] for j in self.categories]
        time_zones = [spec.column.time_zone for spec in specs]
        is_row = isinstance(X, Row)
        X = X.at(self.categories) if is_row else columns_at(as_dense(X), self.categories)
        columns = read_columns(X, time_zones)
        levels = [spec.categories(column) for spec, column in zip(specs, columns, strict=True)]
        return np.stack(levels, axis=1)

    def without_levels(self, removed: list[set[int]]) -> TableEncoding:
        """Return an encoding without the strings of removed levels, given as categories' codes.

        The encoded columns remain. A later row with a removed level has an unknown level.
        """
        specs, encoders = [*self.specs], dict(self.encoders)
        left: defaultdict[Any, list[list[Any]]] = defaultdict(list)  # by encoder
        for (j, encoder_levels), stored, codes in zip(
            self._encoder_levels().items(), self.stored_levels(), removed, strict=True
        ):
            forgotten = {stored[code]: FORGOTTEN.format(code) for code in codes}
            spec = self.specs[j]
            remaining = [forgotten.get(level, level) for level in encoder_levels]
            left[spec.level_encoder].append(remaining)
            if spec.column.levels is not None:
                order = tuple(forgotten.get(level, level) for level in spec.column.levels)
                specs[j] = replace(spec, column=replace(spec.column, levels=order))
        for name, levels in left.items():
            encoders[name] = self.encoders[name].with_levels(levels)
        return TableEncoding(specs, encoders)
