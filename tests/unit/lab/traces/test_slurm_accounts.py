import pytest

from kai.basics.errors import InputError
from kai.lab.traces.slurm_accounts import is_slurm, queues_of_accounts

DUMP = """\
# To edit this file start with a cluster line for the new cluster
# Account - 'cs':MaxJobs=4
Cluster - 'lab':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'physics':Description='physics: all':Fairshare=30:GrpTRES=cpu=512,gres/gpu=16,mem=2T
Account - 'ml_team':Description='ml':Fairshare=70
Parent - 'physics'
Account - 'lattice':Fairshare=parent
User - 'ann':DefaultAccount='physics':Fairshare=1
"""
ASSOCIATIONS = """\
Account|Par Name|User|Share|GrpTRES
root|||1|
physics|root||30|gres/gpu=16
physics||ann|1|
lattice|physics||2|
"""
JOBS = "JobID|Account|User|Submit\n1|physics|ann|2026-11-02T05:18:14\n2|physics|bob|x\n3|chem|bob|x\n"


def queues(text):
    return {each.name: each for each in queues_of_accounts(text, "dump.cfg")}


def shares(proposal, resource="gpu"):
    share = proposal.share(resource)
    return share.quota, share.weight, share.limit


def test_an_account_shares_by_its_fairshare_below_its_limit():
    found = queues(DUMP)
    assert shares(found["physics"]) == (0, 30, 16)
    assert shares(found["physics"], "cpu") == (-1, 30, 512_000)
    assert shares(found["physics"], "memory") == (-1, 30, 2_199_023)
    assert shares(found["ml-team"]) == (0, 70, -1)
    assert found["physics"].reason == "weight: Fairshare=30; limit: GrpTRES=cpu=512,gres/gpu=16,mem=2T"


def test_accounts_are_below_their_parents():
    found = queues(DUMP)
    assert [found[name].parent for name in ("root", "physics", "ml-team", "lattice")] == ["", "root", "root", "physics"]
    assert next(iter(found)) == "root"


def test_a_name_invalid_for_queues_becomes_the_title():
    assert queues(DUMP)["ml-team"].manifest()["spec"]["displayName"] == "ml_team"


def test_two_accounts_never_become_one_queue():
    accounts = "".join(f"Account - '{name}':Fairshare=1\n" for name in ("a_b", "a.b"))
    assert set(queues(f"Cluster - 'x'\nParent - 'root'\n{accounts}")) == {"root", "a-b", "a-b-2"}


def test_users_beside_child_accounts_get_their_own_queue():
    found = queues(DUMP)["physics-users"]
    assert (found.parent, found.source) == ("physics", "users of account physics")


def test_a_parents_share_becomes_weight_one():
    assert shares(queues(DUMP)["lattice"]) == (0, 1, -1)


def test_associations_as_a_table_say_the_same():
    found = queues(ASSOCIATIONS)
    assert shares(found["physics"]) == (0, 30, 16)
    assert found["lattice"].parent == "physics"
    assert "physics-users" in found


def test_jobs_tell_the_names_of_accounts_alone():
    found = queues(JOBS)
    assert list(found) == ["all", "physics", "chem"]
    assert shares(found["chem"]) == (0, 1, -1)


def test_a_limit_that_is_no_number_is_none():
    found = queues("Cluster - 'x'\nParent - 'root'\nAccount - 'a':GrpTRES=gres/gpu=many,mem=x,node=4,cpu=-1\n")
    assert [shares(found["a"], each)[2] for each in ("gpu", "cpu", "memory")] == [-1, -1, -1]


def test_other_texts_are_not_taken_for_slurm():
    assert is_slurm(DUMP)
    assert is_slurm(ASSOCIATIONS)
    assert is_slurm(JOBS)
    assert not is_slurm("apiVersion: v1\nkind: Account\n")
    assert not is_slurm("")


def test_a_text_without_accounts_is_refused():
    with pytest.raises(InputError, match=r"x: found no account, expected sacctmgr dump"):
        queues_of_accounts("JobID|Account\n1|\n", "x")
