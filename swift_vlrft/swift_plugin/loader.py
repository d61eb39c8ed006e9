"""How ms-swift reads our sets: it calls ``load`` with the parsed ``--dataset``; the rows come from
``training_rows``.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from modelscope.hub.utils.utils import get_cache_dir
from swift.dataset import DatasetMeta
from swift.dataset.loader import DatasetLoader
from swift.dataset.preprocessor import RowPreprocessor
from swift.utils import safe_ddp_context

from swift_vlrft.datasets import Source
from swift_vlrft.datasets.parquet import parquet_files
from swift_vlrft.datasets.rows import training_rows


class VlrftLoader(DatasetLoader):
    """Local Parquet through our own reader, a hub id through ms-swift's download; columns stay as
    they are.
    """

    def load(
        self, dataset_syntax: Any = None, dataset_meta: Any = None, *, use_hf: bool | None = None
    ) -> Any:
        # ms-swift drops columns it does not know unless told otherwise (GRPO tells it); rewards
        # read them.
        self.remove_unused_columns = False
        if not os.path.exists(dataset_syntax.dataset):
            return super().load(dataset_syntax, dataset_meta, use_hf=use_hf)
        return dataset_meta.preprocess_func(self._open(Path(dataset_syntax.dataset)))

    def _open(self, path: Path) -> Any:
        from datasets import load_dataset

        with safe_ddp_context(None, True):
            dataset = load_dataset(
                "parquet",
                data_files=[str(file) for file in parquet_files(path)],
                split="train",
                streaming=self.streaming,
                cache_dir=os.path.join(get_cache_dir(), "datasets"),
            )
        return (
            RowPreprocessor.safe_rename_columns(dataset, self.columns) if self.columns else dataset
        )


def meta_for(source: Source) -> DatasetMeta:
    """A hub set as ms-swift registers it, under its id on both hubs."""
    return DatasetMeta(
        ms_dataset_id=source.hub_id,
        hf_dataset_id=source.hub_id,
        preprocess_func=partial(training_rows, task=source.task, frame=source.frame),
        loader=VlrftLoader,
        tags=["vlrft", source.task],
    )


def local_meta(path: str) -> DatasetMeta:
    """A local Parquet set; its task is stated in a column or read off its solutions."""
    return DatasetMeta(
        dataset_path=path, preprocess_func=training_rows, loader=VlrftLoader, tags=["vlrft"]
    )
