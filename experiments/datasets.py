"""The data sets that commands learn, as `data.SOURCES` describes them."""

from collections.abc import Mapping
import types

from absl import flags

from experiments import class_names, options, running
from mnemonics_jax import data
from mnemonics_jax.data import Dataset
from mnemonics_jax.settings import Settings

FLAGS = flags.FLAGS

# Those whose classes are known, and the flags that they have; of other data a
# command has to be told more.
KNOWN = [name for name, source in data.SOURCES.items() if source.classes]
KNOWN_FLAGS = (
  "dataset",
  *{o: 0 for n in KNOWN for o in data.SOURCES[n].options},
)

flags.DEFINE_enum(
  "dataset",
  "digits",
  KNOWN,
  "What to learn. "
  + "; ".join(f"{name}: {data.SOURCES[name].help}" for name in KNOWN)
  + ".",
)

_DEFINE = {
  bool: lambda name, text: flags.DEFINE_bool(name, False, text),
  int: lambda name, text: flags.DEFINE_integer(name, None, text),
  float: lambda name, text: flags.DEFINE_float(name, None, text),
  str: lambda name, text: flags.DEFINE_string(name, None, text),
}


def _define_options() -> None:
  """A flag for each option; data sets that share one explain it in turn."""
  known: dict[str, dict[str, data.Option]] = {}
  for name, source in data.SOURCES.items():
    for option, words in source.options.items():
      known.setdefault(option, {})[name] = words
  for option, by_name in known.items():
    names: dict[str, list[str]] = {}
    for name, words in by_name.items():
      names.setdefault(words.help, []).append(name)
    text = "; ".join(f"{', '.join(n)}: {words}" for words, n in names.items())
    (kind,) = {words.kind for words in by_name.values()}
    _DEFINE[kind](option, f"{text}.")


_define_options()


def load(
  settings: Settings,
  data_dir: str | None = None,
  *,
  names: Mapping[str, str] = types.MappingProxyType({}),
  title: str | None = None,
) -> Dataset:
  """The data set of a run, with the options that flags or presets give it.

  Args:
    settings: of the run.
    data_dir: where the data are, if it is not --data_dir that tells.
    names: what to call classes; those of ImageNet are known.
    title: what to call the data.
  """
  source = data.SOURCES[settings.dataset]
  given = {
    name: getattr(settings, name, FLAGS[name].value) for name in source.options
  }
  data_dir = given.pop("data_dir", data_dir)
  given = {name: value for name, value in given.items() if value is not None}
  if source.streams:
    given["stream"] = settings.stream
  dataset = running.load_data(settings.dataset, data_dir, **given)
  return class_names.rename(dataset, names, title or dataset.name)


def learn(dataset: str) -> None:
  """The run that the flags ask for, of one of the data sets."""
  settings = options.settings_from_flags(dataset)
  running.run_experiment(settings, lambda: load(settings))
