# %% [markdown]
# # CIFAR-100 on a TPU, ten phases
#
# [![Open in Colab](../docs/pictures/colab.svg)](https://colab.research.google.com/github/OWNER/mnemonics_jax/blob/main/notebooks/cifar100_tpu.ipynb)
#
# LUCIR with learned exemplars on CIFAR-100: 50 classes first, then ten times five,
# at the paper's schedule. The run lives on your Drive and continues after a
# preemption. Choose a TPU (or GPU) runtime first: *Runtime → Change runtime type*.
#
# These cells were run on a CPU with small settings, not yet on Colab.

# %% [markdown]
# ## Install
#
# A Colab runtime brings an older jax than this package needs. Installing must
# come **before** anything imports jax. All work below is done in processes of
# their own: a TPU belongs to one process, so this notebook must not touch it.

# %%
import importlib.metadata
import json
import os
from pathlib import Path
import subprocess
import sys

SMOKE = "MNEMONICS_SMOKE" in os.environ  # Digits on a CPU, in seconds.
COLAB = "google.colab" in sys.modules
HOME = Path("/content/mnemonics_jax")
ACCELERATOR = "tpu"  # Or "cuda12", for a runtime with a GPU.

if COLAB:
  source = "https://github.com/OWNER/mnemonics_jax"
  if not HOME.exists():
    subprocess.run(["git", "clone", "-q", source, HOME], check=True)
  target = f"{HOME}[{ACCELERATOR}]"
  pip = [sys.executable, "-m", "pip", "install", "-q", "-e", target]
  subprocess.run(pip, check=True)
  sys.path.insert(0, str(HOME))


def python(*arguments, quiet=False):
  """Runs Python in a process of its own, showing what it prints."""
  command = [sys.executable, *map(str, arguments)]
  process = subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  )
  lines = []
  for line in process.stdout:
    lines.append(line)
    if not quiet:
      print(line, end="")
  if process.wait():
    raise RuntimeError(
      f"exit code {process.returncode}\n" + "".join(lines[-20:])
    )
  return "".join(lines)


# %% [markdown]
# ## Do the versions fit?

# %%
versions = {
  name: importlib.metadata.version(name) for name in ("jax", "jaxlib")
}
print("Python", sys.version.split()[0], versions)
for name, version in versions.items():
  if not (0, 10) <= tuple(map(int, version.split(".")[:2])) < (0, 12):
    raise RuntimeError(
      f"{name} {version} does not fit, 0.10 or 0.11 is needed. Run `pip install"
      " -U 'jax[tpu]>=0.10,<0.12'` in a cell, restart the session (Runtime →"
      " Restart session), and begin again."
    )
if sys.version_info >= (3, 14):
  raise RuntimeError("Python 3.11 to 3.13 is needed: choose an older runtime.")
devices = python("-c", "import jax; print(jax.devices())")
if COLAB and "Cpu" in devices:
  print(
    "No accelerator: the paper's schedule would take weeks. Change the runtime."
  )

# %% [markdown]
# If jax finds no TPU although the runtime has one, another process holds it:
# restart the session, and do not import jax in this notebook.
#
# ## Drive
#
# What is below `ROOT` outlives the runtime.

# %%
if COLAB:
  from google.colab import drive

  drive.mount("/content/drive")
  ROOT = Path("/content/drive/MyDrive/mnemonics")
else:
  ROOT = Path("cifar100_tpu")
DATA, RUN = ROOT / "data", ROOT / "lucir_mnemonics_n10"
DATA.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Data
#
# Either upload
# [cifar-100-python.tar.gz](https://www.cs.toronto.edu/~kriz/cifar.html) into
# `mnemonics/data` on your Drive; it is checked against the published MD5 sums. Or
# let TFDS fetch it, which needs TensorFlow: `DOWNLOAD = True`.

# %%
DOWNLOAD = False

archive = DATA / "cifar-100-python.tar.gz"
if SMOKE:
  print("digits come with scikit-learn")
elif DOWNLOAD:
  extra = f"{HOME}[tf]" if COLAB else "tensorflow"
  python("-m", "pip", "install", "-q", *(["-e"] if COLAB else []), extra)
elif archive.exists():
  # Once: a TFDS directory, which later starts read faster.
  if not (DATA / "cifar100").exists():
    prepare = ("-m", "mnemonics_jax.data.prepare")
    python(*prepare, f"--source={archive}", f"--data_dir={DATA}")
elif not (DATA / "cifar100").exists():
  raise RuntimeError(f"upload {archive.name} to {DATA}, or set DOWNLOAD = True")

# %% [markdown]
# ## Run, and survive preemption
#
# There is a checkpoint after every phase and every three minutes within one.
# **After a preemption run all cells again**: the same command continues where it
# was and ends with the same numbers. Interrupting the cell saves, too.

# %%
if SMOKE:
  command = ("experiments.digits", "--preset=smoke", "--phases=1")
  command += ("--images_per_class=30", "--meta_epochs=1", "--notensorboard")
else:
  command = ("experiments.cifar", "--phases=10", "--preset=paper")
  command += ("--method=lucir", "--exemplars=mnemonics", "--adjust")
  command += ("--transfer=in_out", "--finetune=all", f"--data_dir={DATA}")
  command += ("--download",) if DOWNLOAD else ()
python("-m", *command, f"--workdir={RUN}")

# %% [markdown]
# `--preset=paper` unrolls the whole network for exemplars. If that does not fit
# into the device's memory, the run says so beforehand: add `--exemplar_chunk=5`
# (another run, hence another `--workdir`). `--preset=short` shows the whole way in
# minutes.
#
# What would a run continue from?

# %%
for path in sorted(RUN.glob("seed_*/checkpoints/*")):
  print(path.relative_to(RUN))

# %% [markdown]
# ## The report
#
# `report.html` on your Drive is one page with everything in it; here it is inline.

# %%
import html

from IPython.display import HTML

page = html.escape((RUN / "report.html").read_text(encoding="utf-8"))
HTML(f'<div><iframe srcdoc="{page}" width="100%" height="700"></iframe></div>')

# %% [markdown]
# ## Beside the paper's row
#
# Table 1 of the paper, LUCIR with mnemonics, N = 10: mean of accuracies after all
# phases, and forgetting, in percent. A comparison is fair only if the schedule is
# the paper's; one seed has no confidence interval.

# %%
import yaml

import experiments

tables = Path(experiments.__file__).with_name("paper_tables.yaml")
paper = yaml.safe_load(tables.read_text(encoding="utf-8"))
column = paper["columns_N"].index(10)
results = json.loads((RUN / "results.json").read_bytes())
summary = results["summary"][results["readout"]]
print(f"{results['title']} · schedule: {results['schedule']}")
if results["schedule"] != "paper" or results["dataset"] != "cifar100":
  print("Not comparable: other data, or a reduced schedule.")
print(f"{'':<12}{'paper, N = 10':>16}{'here':>8}")
for key, name in (("average", "avg_acc"), ("forgetting", "forgetting")):
  published = paper["table_1"][name]["LUCIR_ours"]["cifar100"][column]
  print(f"{key:<12}{published:>16.2f}{100 * summary[key]['mean']:>8.2f}")

# %% [markdown]
# Next: [look at the run from inside](inspect_run.ipynb).
