"""Every generated part by its name."""

from collections.abc import Mapping

from tests.reference.attacks import attacks
from tests.reference.commands import commands
from tests.reference.findings import findings
from tests.reference.groups import group, kinds
from tests.reference.marks import Make
from tests.reference.names import names
from tests.reference.output import output
from tests.reference.policy import actions, default_configuration, parameters, peer_plugins, plugins
from tests.reference.reasons import reasons, states
from tests.reference.resources import resource
from tests.reference.voices import voices

PARTS: Mapping[str, Make] = {
    "actions": actions,
    "attacks": attacks,
    "commands": commands,
    "default-configuration": default_configuration,
    "findings": findings,
    "group": group,
    "kinds": kinds,
    "names": names,
    "output": output,
    "parameters": parameters,
    "peer-plugins": peer_plugins,
    "plugins": plugins,
    "reasons": reasons,
    "resource": resource,
    "states": states,
    "voices": voices,
}
