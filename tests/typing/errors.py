"""Errors keep their own type through their constructors."""

from typing import assert_type

from kai.basics.errors import ApiError, ConfigError, InputError, KaiError, PluginError

assert_type(InputError.about("pod a", "spec", found=1, wanted="a mapping"), InputError)
assert_type(ConfigError.joined([ConfigError("x")]), ConfigError)
assert_type(ConfigError("a", "b").messages, tuple[str, ...])
assert_type(ApiError("x", retryable=True).retryable, bool)

family: list[KaiError] = [InputError("x"), PluginError("x", plugin="p", hook="h")]
ApiError("x")  # type: ignore[call-arg]  # whether trying again helps must be said
ConfigError.joined([InputError("x")])  # type: ignore[list-item]  # kinds are not mixed
