"""What tests share. Annotations are checked by `check` while they run."""

from beartype import BeartypeConf, beartype

# As Python's own convention has it, an int will do where a float is expected.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
