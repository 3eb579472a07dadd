"""A small CIFAR-100 and a small ImageNet, for the tests that read them."""

import pytest
from support import data_files, imagenet

from mnemonics_jax.data import prepare


@pytest.fixture(scope="module")
def expected():
  return data_files.cifar_arrays()


@pytest.fixture(scope="module")
def official(tmp_path_factory, expected):
  """A directory with `cifar-100-python` and its archive, and the MD5 sums."""
  root = tmp_path_factory.mktemp("official")
  md5 = data_files.write_official(root / "cifar-100-python", expected)
  archives = root / "archive"
  archives.mkdir()
  data_files.write_archive(
    archives / "cifar-100-python.tar.gz", root / "cifar-100-python"
  )
  return root, md5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, official):
  root, md5 = official
  data_dir = tmp_path_factory.mktemp("tfds")
  prepare.prepare_cifar100(root, data_dir, md5=md5)
  return data_dir


@pytest.fixture(scope="module")
def prepared_imagenet(tmp_path_factory):
  """A directory with a small ImageNet in several shards."""
  source = imagenet.folder(tmp_path_factory.mktemp("source"))
  root = tmp_path_factory.mktemp("data")
  prepare.prepare_imagenet(imagenet.WORLD, source, root, shard_bytes=2000)
  return root
