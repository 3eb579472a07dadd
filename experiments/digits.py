"""Class-incremental learning of scikit-learn's digits: the method in minutes.

  python -m experiments.digits
  python -m experiments.digits --method=icarl --memory=per_class:2 --seeds=0,1,2

1,797 images of 8×8 pixels come with scikit-learn, nothing is downloaded: 5
digits are learned first, then the others one by one.
"""

from experiments import command, flags, running

FLAGS = flags.of_run("digits")

if __name__ == "__main__":
  with command.session(__doc__, FLAGS, presets_of="digits"):
    running.learn("digits", FLAGS)
