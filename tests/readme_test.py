"""What the README shows must run and come out as it says."""

from pathlib import Path
import re

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_library_example_gets_better_exemplars(capsys):
  (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
  exec(compile(code, "README.md", "exec"), {})
  before, after = re.findall(r"([\d.]+)%", capsys.readouterr().out)
  claimed = re.search(
    r"to (\d+) % test accuracy.*?to (\d+) %", README, re.DOTALL
  )
  assert abs(float(before) - float(claimed[1])) < 1.5
  assert abs(float(after) - float(claimed[2])) < 1.5
