"""The free storage capacity that drivers report, while pods are being placed.

Volumes that the pods placed in this session will have provisioned are subtracted. Volumes that terminating pods will
give back count too, but a pod that needs them is only promised its place.

Source: the peer's storagecapacity_info, and the two fit tests for storage of its node_info.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from kai.framework import COUNTED, NONE, Bools, Int64s, PodRow, PodRows, SessionView, Status, status_mask, within
from kai.plugins.volumes.objects import StorageCapacity, VolumeCatalog, VolumeClaim
from kai.plugins.volumes.reach import NO_SPACE, Answer, Mounts

LEAVING = status_mask(Status.RELEASING, Status.STUCK_IN_RELEASING)
MOST_BOOKED = 2**48
"""Bytes that one pod, or one claim of several, is booked with at most: any user can ask for any size, and what
thousands of pods are booked with has to stay within 64 bits."""
MOST_REPORTED = 2**62
"""Bytes that a report counts at most: some drivers report the largest number there is, and what is given back comes on
top."""


@attrs.frozen(eq=False)
class _Consumers:
    """Pods with claims that are not provisioned yet."""

    pods: PodRows
    """Those with claims that no other pod uses, ascending."""
    sizes: Int64s
    """Of the claims of each."""
    shared: tuple[tuple[int, PodRows], ...]
    """Size and users of each claim that several pods use: it is provisioned once."""


@attrs.frozen(eq=False)
class _Owners:
    """Pods that own claims: their claims go with them."""

    pods: PodRows
    """Ascending."""
    sizes: Int64s
    """Of the claims of each."""


class Storage:
    """The reports of drivers, and the pods that have or will have something provisioned.

    A node that two reports for one class cover has no report at all, as in the peer: a claim could be charged to
    either of the two.
    """

    def __init__(self, session: SessionView, catalog: VolumeCatalog, mounts: Sequence[Mounts | None]) -> None:
        """Find out which report covers which node, and whose claims count against it."""
        self._session = session
        self._mounts = mounts
        self._catalog = catalog
        self._classes = {
            name for name, kind in sorted(catalog.classes.items()) if kind.wait and kind.provisioner in catalog.drivers
        }
        self._reports = tuple(each for each in catalog.capacities if each.storage_class in self._classes)
        self._report_of = self._accessible()
        self._consumers = {name: self._consumers_of(name) for name in sorted(self._classes)}
        # By uid: a pod made anew under an old name does not own the claim of the earlier one.
        rows = {pod.uid: row for row, pod in enumerate(session.snapshot.pods)}
        self._owners = {name: self._owners_of(name, rows) for name in sorted(self._classes)}
        self._alive = {
            pod.uid
            for row, pod in enumerate(session.snapshot.pods)
            if not within(int(session.snapshot.pod_status[row]), LEAVING)
        }

    def _accessible(self) -> Mapping[str, Int64s]:
        """Return by class int64[N]: the row of the report that covers each node, -1 for none."""
        report_of = {name: np.full(len(self._session.snapshot.nodes), NONE, np.int64) for name in self._classes}
        ambiguous = np.zeros(len(self._session.snapshot.nodes), np.bool_)
        for row, report in enumerate(self._reports):
            covered = self._covers(report)
            ambiguous |= covered & (report_of[report.storage_class] != NONE)
            report_of[report.storage_class][covered] = row
        for rows in report_of.values():
            rows[ambiguous] = NONE
        return report_of

    def _covers(self, report: StorageCapacity) -> Bools:
        if report.nodes is None:
            return np.ones(len(self._session.snapshot.nodes), np.bool_)
        return self._session.node_labels.selects(report.nodes)

    def _consumers_of(self, name: str) -> "_Consumers":
        """Return the pods that will have something of a class provisioned."""
        users: dict[tuple[str, str], list[int]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for shape, mount in enumerate(self._mounts):
            for claim in self._pending(mount, name):
                key = (claim.namespace, claim.name)
                users.setdefault(key, []).append(shape)
                sizes[key] = claim.size
        own: dict[int, int] = {}
        shared: list[tuple[int, PodRows]] = []
        for key, shapes in users.items():
            chosen = np.zeros(len(self._mounts), np.bool_)
            chosen[shapes] = True
            pods = self._session.pods_of_shapes(chosen)
            # Over pods and not shapes: several pods of one shape use one claim as well.
            if len(pods) == 1:
                own[int(pods[0])] = min(own.get(int(pods[0]), 0) + sizes[key], MOST_BOOKED)
            else:
                shared.append((min(sizes[key], MOST_BOOKED), pods))
        rows = sorted(own)
        return _Consumers(np.array(rows, np.int64), np.array([own[row] for row in rows], np.int64), tuple(shared))

    def _owners_of(self, name: str, rows: Mapping[str, int]) -> "_Owners":
        """Return the pods with ephemeral claims of a class; ``rows`` are all pods by uid."""
        own: dict[int, int] = {}
        for claim in self._catalog.claims.values():
            row = rows.get(claim.owner_pod)
            if row is not None and claim.storage_class == name:
                own[row] = min(own.get(row, 0) + claim.size, MOST_BOOKED)
        pods = sorted(own)
        return _Owners(np.array(pods, np.int64), np.array([own[row] for row in pods], np.int64))

    @staticmethod
    def _pending(mount: Mounts | None, name: str) -> Iterator[VolumeClaim]:
        for claim in mount.claims if mount is not None else ():
            if claim.storage_class == name and claim.phase == "Pending":
                yield claim

    def answers(self, pod: PodRow, mount: Mounts) -> Iterator[Answer]:
        """Yield each kind of refusal with the nodes that it leaves, now or once terminating pods are gone."""
        orphaned = self._orphaned(mount)
        deleted = f"task has deleted storage claims: {', '.join(orphaned)}" if orphaned else ""
        for name, wanted in sorted(self._wanted(pod, mount).items()):
            report_of = self._report_of[name]
            yield deleted or f"no allocatable storage from storageclass {name} found", report_of != NONE
            enough = self._left(name)[report_of] + self._given_back(name) >= wanted
            yield deleted or f"{NO_SPACE} for storageclass {name}", enough

    def waits(self, pod: PodRow, mount: Mounts) -> Bools:
        """Return bool[N]: where the pod needs capacity from terminating pods, or a claim that ends with one."""
        if self._orphaned(mount):
            return np.ones(len(self._session.snapshot.nodes), np.bool_)
        waits = np.zeros(len(self._session.snapshot.nodes), np.bool_)
        for name, wanted in self._wanted(pod, mount).items():
            waits |= self._left(name)[self._report_of[name]] < wanted
        return waits

    def _orphaned(self, mount: Mounts) -> list[str]:
        """Return the names of the claims that go because their owner is about to go."""
        claims = (claim for claim in mount.claims if claim.storage_class in self._classes and claim.owner_pod)
        return sorted(claim.name for claim in claims if claim.owner_pod not in self._alive)

    def _wanted(self, pod: PodRow, mount: Mounts) -> Mapping[str, int]:
        """Return by class the bytes that the pod would have provisioned; a pod that moves needs its own claims anew."""
        columns = self._session.columns
        moved = bool(columns.virtual[pod]) and not within(int(columns.status[pod]), COUNTED)
        uid = self._session.snapshot.pods[pod].uid
        out: dict[str, int] = {}
        for claim in mount.claims:
            anew = moved and claim.owner_pod == uid
            if claim.storage_class in self._classes and (claim.phase == "Pending" or anew):
                out[claim.storage_class] = out.get(claim.storage_class, 0) + claim.size
        return out

    def _left(self, name: str) -> Int64s:
        """Return int64[C + 1]: the rest of each reported capacity, less the claims of all pods with a place.

        The last entry stands for "no report".
        """
        left = np.array([*(min(report.capacity, MOST_REPORTED) for report in self._reports), 0], np.int64)
        consumers = self._consumers[name]
        pods, nodes = self._session.assigned(consumers.pods)
        # A pod that moves is on two nodes: if one report covers both, it is charged once. Row -1 is the last entry.
        charged = np.unique(np.stack([pods, self._report_of[name][nodes]]), axis=1)
        np.subtract.at(left, charged[1], consumers.sizes[np.searchsorted(consumers.pods, charged[0])])
        for size, users in consumers.shared:
            _, nodes = self._session.assigned(users)
            left[np.unique(self._report_of[name][nodes])] -= size
        return left

    def _given_back(self, name: str) -> Int64s:
        """Return int64[N]: the capacity that the claims of leaving pods will give back, by node."""
        owners, columns = self._owners[name], self._session.columns
        back = np.zeros(len(self._session.snapshot.nodes), np.int64)
        pods, nodes = self._session.assigned(owners.pods)
        # A pod that was promised another node is leaving the one where it still is.
        leaving = ((LEAVING >> columns.status[pods]) & 1).astype(np.bool_) | (nodes != columns.node[pods])
        np.add.at(back, nodes[leaving], owners.sizes[np.searchsorted(owners.pods, pods[leaving])])
        return back
