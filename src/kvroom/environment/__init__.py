"""The machine and the software that a launch runs on: the record that a good bug report needs."""
