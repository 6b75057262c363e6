import pytest

from kai.facts.model.claim import Device
from kai.facts.model.device_selectors import Fault, Selectors, rewritten

DEVICE = Device(
    name="gpu-0",
    attributes={
        "gpu.example.com/model": "A100",
        "gpu.example.com/index": 2,
        "gpu.example.com/ecc": True,
        "gpu.example.com/driverVersion": "550.54.15",
        "topology.example.com/root": "pci0",
    },
    capacity={"gpu.example.com/memory": (80 << 30) * 1000},
)


def selects(expression, device=DEVICE):
    return Selectors().selects(expression, "gpu.example.com", device)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].model == "A100"',
        'device.attributes["gpu.example.com"].model.lowerAscii().startsWith("a")',
        'device.attributes["gpu.example.com"].index in [1, 2]',
        'device.attributes["gpu.example.com"].ecc',
        'device.attributes["gpu.example.com"].?missing.orValue(7) == 7',
        'has(device.attributes["gpu.example.com"].model)',
        '!has(device.attributes["other.example.com"].model)',
        '"gpu.example.com" in device.attributes',
        '!("other.example.com" in device.attributes) && !has(device.attributes["other.example.com"].x)',
        'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.model == "A100" && gpu.index < 3)',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) == 0',
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))',
        'device.capacity["gpu.example.com"].memory.sub(quantity("1Gi")).isLessThan(quantity("80Gi"))',
        'isQuantity("4Gi") && !isQuantity("four") && !isQuantity("1e999999999")',
        'quantity("1500m") == 2 && quantity("-1500m") == -2 && quantity("1.5k") == 1500 && quantity(".5") == 1',
        'semver(device.attributes["gpu.example.com"].driverVersion).isGreaterThan(semver("550.0.0"))',
        'device.attributes["gpu.example.com"].driverVersion.compareTo(semver("550.54.15")) == 0',
        'semver("1.2.3").major() == 1 && semver("1.2.3").minor() == 2 && semver("1.2.3").patch() == 3',
        'semver("v550.54", true).compareTo(semver("550.54.0")) == 0 && semver("1.2.3", false).minor() == 2',
        'isSemver("v01.2", true) && !isSemver("v01.2", false) && !isSemver("v01.2") && !isSemver("one", true)',
        'sets.contains(["A100", "H100"], [device.attributes["gpu.example.com"].model]) && sets.contains([], [])',
        "!sets.contains([1, 2], [3]) && !sets.contains([1], [true]) && sets.contains([1, 2.0, [3]], [2u, [3u]])",
        "sets.equivalent([1, 2], [2, 1, 1]) && !sets.equivalent([1], [1, 2])",
        "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([], [])",
        '[1, 2, 2].isSorted() && !["b", "a"].isSorted() && [].isSorted()',
        "[1, 3].sum() == 4 && [1.5, 2.0].sum() == 3.5 && [].sum() == 0",
        '[3, 1].min() == 1 && [3, 1].max() == 3 && ["a", "b"].max() == "b"',
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(7) + [1].lastIndexOf(7) == -2",
        '"abcb".indexOf("b") == 1 && "abcb".lastIndexOf("b") == 3 && "ab".reverse() == "ba"',
        "[1, 2, 3].slice(1, 3) == [2, 3] && [3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1]",
        "[2, 1, 2, 1].distinct() == [2, 1] && [1, true].distinct().size() == 2",
        'ip("2001:DB8::0:1") == ip("2001:db8::1") && isIP("::1") && !isIP("fe80::1%eth0") && !isIP("::ffff:1.2.3.4")',
        '!isIP("127.0.0.256") && !isIP("01.2.3.4") && ip.isCanonical("::1") && !ip.isCanonical("0::1")',
        'ip("10.0.0.1").family() == 4 && ip("::1").family() == 6 && ip("0.0.0.0").isUnspecified()',
        'ip("127.9.0.1").isLoopback() && ip("169.254.1.1").isLinkLocalUnicast() && !ip("fd80::1").isLinkLocalUnicast()',
        'ip("224.0.0.1").isLinkLocalMulticast() && !ip("224.0.1.1").isLinkLocalMulticast()',
        'ip("ff02::1").isLinkLocalMulticast() && !ip("fd00::1").isLinkLocalMulticast()',
        'ip("192.168.0.1").isGlobalUnicast() && !ip("255.255.255.255").isGlobalUnicast()',
        'cidr("192.168.0.0/24").containsIP("192.168.0.1") && !cidr("192.168.0.0/24").containsIP(ip("192.168.1.1"))',
        'cidr("192.168.0.0/16").containsCIDR("192.168.10.0/24") && !cidr("10.0.0.0/24").containsCIDR("10.0.0.0/16")',
        '!cidr("::/0").containsCIDR("10.0.0.0/8") && !cidr("::/0").containsIP("10.0.0.1")',
        'cidr("192.168.0.1/24").masked() == cidr("192.168.0.0/24") && cidr("192.168.0.1/24").ip() == ip("192.168.0.1")',
        'cidr("::1/128").prefixLength() == 128 && isCIDR("10.0.0.0/8") && !isCIDR("10.0.0.0") && !isCIDR("1.0.0.0/33")',
        '!isCIDR("10.0.0.0/255.0.0.0") && !isCIDR("10.0.0.0/08") && !isCIDR("::ffff:1.2.3.4/24")',
        "device.allowMultipleAllocations == false",
        "true || device.nothing",
    ],
)
def test_expressions_about_a_device_hold(expression):
    assert selects(expression) is True


@pytest.mark.parametrize(
    "expression",
    ['device.driver == "other"', 'device.attributes["gpu.example.com"].index > 2', '"x" in device.capacity', "false"],
)
def test_expressions_about_a_device_do_not_hold(expression):
    assert selects(expression) is False


@pytest.mark.parametrize(
    "expression",
    [
        "1 +",
        "nobody == 1",
        "device.driver",
        'device.attributes["gpu.example.com"].missing == 1',
        'device.attributes["other.example.com"].x == 1',
        'quantity("four") > 3',
        'semver("one").isLessThan(semver("1.0.0"))',
        'semver("one", true).isLessThan(semver("1.0.0"))',
        "[].min() == 0",
        '["a", 1].max() == 1',
        "[1, 2].slice(1, 3) == [2]",
        'ip("fe80::1%eth0") == ip("::1")',
        'cidr("10.0.0.1/8").containsIP("ten")',
    ],
)
def test_a_failure_is_a_fault_and_no_answer(expression):
    fault = selects(expression)
    assert isinstance(fault, Fault)
    assert expression in fault.text


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('device.driver.find("a+") == "a"', "find is not offered by kai"),
        ('url("https://a").getHost() == "a"', "url is not offered by kai"),
        ("[1].transformList(i, v, v).size() == 1", "transformList is not offered by kai"),
        ("device.driver.foo() && bar()", "undeclared reference to 'foo'"),
        ("device.driver.foo(\n)", "undeclared reference to 'foo'"),
    ],
)
def test_an_unknown_function_is_named_in_one_line(expression, said):
    assert selects(expression).text == f"selector {' '.join(expression.split())!r}: {said}"


def test_a_long_expression_is_cut_where_it_is_told():
    text = selects(f"{'true && ' * 400}device.driver.foo()").text
    assert text.endswith("...': undeclared reference to 'foo'")
    assert len(text) < 200


def test_an_answer_is_remembered_per_device_object():
    selectors = Selectors()
    twin = Device(name="gpu-0", attributes={"gpu.example.com/model": "H100"})
    expression = 'device.attributes["gpu.example.com"].model == "A100"'
    assert [selectors.selects(expression, "d", each) for each in (DEVICE, twin, DEVICE)] == [True, False, True]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("kai.facts.model.device_selectors._MANY", 3)
    selectors = Selectors()
    devices = [Device(name=f"d{at}", attributes={"d/index": at}) for at in range(9)]
    answers = [selectors.selects('device.attributes["d"].index > 4', "d", each) for each in devices * 2]
    assert answers == [at > 4 for at in range(9)] * 2
    assert sum(map(len, selectors._known.values())) <= 3


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('"a" in device.attributes', '"a" in device.attributesDomains'),
        ('"a" in device.attributes["b"]', '"a" in device.attributes["b"]'),
        ('"in device.attributes" == "x"', '"in device.attributes" == "x"'),
        ("'a' in device.capacity && true", "'a' in device.capacityDomains && true"),
    ],
)
def test_only_tests_for_a_domain_are_rewritten(expression, expected):
    assert rewritten(expression) == expected


def test_an_expression_over_too_many_values_is_a_fault():
    expression = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, " * 4 + "true" + ")" * 4
    found = selects(expression)
    assert isinstance(found, Fault)
    assert "gpu-0" in found.text
    assert "Iteration budget exceeded" in found.text


def test_an_answer_of_a_foreign_type_is_a_fault():
    found = selects('device.attributes["gpu.example.com"].?model')
    assert isinstance(found, Fault)
    assert "expected true or false" in found.text


def test_expressions_of_claims_that_are_gone_are_forgotten():
    selectors = Selectors()
    for number in range(5000):
        selectors._compiled[f"device.driver == '{number}'"] = Fault("")
    assert selectors.selects("true", "gpu.example.com", DEVICE) is True
    assert len(selectors._compiled) == 1
