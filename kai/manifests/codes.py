"""Every code of a finding with its text: for ``--explain``, and for the pages of the documentation.

The letter is the subject: T texts, F fields, Q queues, J jobs, W rules of admission webhooks, C
configurations of the scheduler, S scenarios.
"""

from typing import Final

import attrs

ERROR, WARNING = "error", "warning"
REFUSAL, WAIT, ADVICE = "refusal", "wait", "advice"
MEANINGS: Final[dict[str, str]] = {
    REFUSAL: "kubectl, an API server, an admission webhook, a controller or a node refuses the object, or kai cannot "
    "read it. kai leaves the object out of its decisions, and its job is Refused.",
    WAIT: "The object is accepted, and a job waits because of it.",
    ADVICE: "The object is accepted and kai uses it; something in it may not have the intended effect.",
}
"""The effect of a finding on its object, the same in every command."""


@attrs.frozen
class Code:
    """One kind of finding."""

    severity: str
    """Error or warning: whether `kai lint` leaves with 1."""
    meaning: str
    """One of ``MEANINGS``."""
    title: str
    text: str


CODES: Final[dict[str, Code]] = {
    "T001": Code(
        ERROR,
        REFUSAL,
        "the text is neither YAML nor JSON",
        "kai uses nothing of the file. The place is where reading stopped; the mistake may be earlier.",
    ),
    "T002": Code(
        ERROR,
        REFUSAL,
        "a key occurs twice in one object",
        "Only one of the two values would count, and which one depends on the program. kubectl refuses it as well. "
        "Two objects in one file need a line with --- between them.",
    ),
    "T003": Code(
        ERROR,
        REFUSAL,
        "something else is where an object should be",
        "A manifest is an object with apiVersion, kind and metadata.name.",
    ),
    "T004": Code(
        ERROR,
        REFUSAL,
        "one object is defined twice",
        "Two documents have the same kind, namespace and name. In a cluster the later one would replace the earlier.",
    ),
    "T005": Code(
        ERROR,
        REFUSAL,
        "the file cannot be read, or holds nothing",
        "The path does not exist, may not be read, or has no objects in it.",
    ),
    "F001": Code(
        ERROR,
        REFUSAL,
        "a field has a value that it cannot have",
        "The type is wrong, or the amount cannot be: an amount is a number with a unit or none, as 500m or 64Gi, and "
        "not negative, of GPUs as of anything else.",
    ),
    "F002": Code(
        ERROR,
        REFUSAL,
        "a field does not exist, and another one is spelled almost like it",
        "The API server drops fields that it does not know, so the setting would have no effect.",
    ),
    "F003": Code(
        WARNING,
        ADVICE,
        "a field does not exist",
        "The API server drops fields that it does not know. It may belong to a newer version of the kind.",
    ),
    "F004": Code(
        WARNING,
        ADVICE,
        "kai does not read this kind in this version",
        "kai knows the group and kind, but not the version, and ignores the object.",
    ),
    "F005": Code(
        ERROR,
        ADVICE,
        "a label or an annotation is spelled almost like one that counts",
        "An API server takes any key, so the setting has no effect: a pod with gpu-fractoin gets no GPU.",
    ),
    "F006": Code(
        WARNING,
        ADVICE,
        "kai reads no label or annotation of this name",
        "The key stands below kai.scheduler/, and has no effect. It may belong to a plugin, or to another version.",
    ),
    "F007": Code(
        ERROR,
        ADVICE,
        "a label or an annotation has a value that does not count",
        "It has one of a few words as its value. kai ignores any other: a job with the preemptibility "
        "nonpreemptible is preemptible.",
    ),
    "Q001": Code(
        ERROR,
        WAIT,
        "the parent of a queue does not exist",
        "A queue whose parent is missing gets nothing, and its jobs wait.",
    ),
    "Q002": Code(ERROR, WAIT, "a queue is its own ancestor", "Queues form a tree; queues in a cycle get nothing."),
    "Q003": Code(
        ERROR,
        ADVICE,
        "the limit of a queue is below its quota",
        "A queue may never use more than its limit, so the rest of the quota could never be used. -1 is no limit.",
    ),
    "Q004": Code(
        ERROR,
        ADVICE,
        "a quota, limit or weight is negative, and not -1",
        "-1 means unlimited; other negative amounts mean nothing.",
    ),
    "Q005": Code(
        WARNING,
        ADVICE,
        "the quotas of children sum to more than the quota of their parent",
        "The children cannot all have their quota at once; the parent's quota divides what is short.",
    ),
    "Q006": Code(
        WARNING,
        WAIT,
        "the parent of a queue is not in this input",
        "It must exist in the cluster: a queue whose parent is missing gets nothing, and its jobs wait.",
    ),
    "Q007": Code(
        WARNING,
        ADVICE,
        "a queue is being deleted",
        "Its jobs start until it is gone, and jobs that still wait then find no queue of its name. Nothing sets "
        "metadata.deletionTimestamp in a manifest that is applied: it comes from a copy of what is in a cluster.",
    ),
    "Q008": Code(
        ERROR,
        WAIT,
        "a queue may use GPUs, and no CPU or no memory",
        "What is missing is a limit of 0: jobs that ask for any of it wait for ever. -1 is no limit. Queues above a "
        "queue count as well.",
    ),
    "Q009": Code(
        ERROR,
        WAIT,
        "a queue has too many queues above it",
        "The scheduler follows 32 levels of queues; jobs in a deeper queue wait.",
    ),
    "Q010": Code(
        ERROR,
        ADVICE,
        "a schedule of a queue cannot be used",
        "The scheduler leaves the entry out, and the queue keeps the amounts that it has outside of it. The webhook "
        "refuses such a queue.",
    ),
    "Q011": Code(
        WARNING,
        ADVICE,
        "a schedule of a queue has no start in the years to come",
        "Its days exist in no month of the schedule, such as 31 February, so its window never opens.",
    ),
    "Q012": Code(
        WARNING,
        ADVICE,
        "in a window, a limit is below the quota or the quotas of children exceed that of their parent",
        "Outside of the window the amounts fit. A schedule of the parent, with the same start and duration, mends it.",
    ),
    "Q013": Code(
        WARNING,
        ADVICE,
        "work that a closing window evicts may start again at once",
        "Outside of the window the queue's limit is above its quota, so evicted jobs start again where GPUs are idle. "
        "onClose: reclaim leaves them until others want the GPUs; a limit equal to the quota keeps them out.",
    ),
    "Q014": Code(
        ERROR,
        ADVICE,
        "a queue bounds a GPU model by a name that no model can have",
        "Models have short names, such as h100 for NVIDIA-H100-80GB-HBM3. No GPU has a model of this name, so the "
        "bound holds for none. The webhook refuses such a queue.",
    ),
    "Q015": Code(
        WARNING,
        ADVICE,
        "the limit of a model of GPU has no effect, because a lower one holds",
        "A queue uses no more GPUs of a model than its limit of gpu, and no more than a queue above it may use.",
    ),
    "Q016": Code(
        WARNING,
        ADVICE,
        "a queue names a model of GPU that no node of the input has",
        "The bound holds for no GPU. Models follow from the label nvidia.com/gpu.product of nodes, or from "
        "kai.scheduler/gpu-model.",
    ),
    "Q017": Code(
        WARNING,
        ADVICE,
        "the limit of a model of GPU is below the quota",
        "A queue uses no more of a model than its limit, so it never gets its quota. Raise the one or lower the other.",
    ),
    "Q018": Code(
        WARNING,
        ADVICE,
        "the quotas of models of GPUs add up to more than the quota of gpu",
        "A queue takes GPUs of a model only while it is within its fair share of gpu. Only its quota of gpu is a "
        "certain part of that share. The part beyond that quota is promised to others, too.",
    ),
    "Q019": Code(
        WARNING,
        ADVICE,
        "the children of a queue have more quota of a model of GPU than the queue",
        "If all ask for their quota, each child is owed the same fraction of it. A queue without a quota of the model "
        "is owed the sum of its children.",
    ),
    "Q021": Code(
        ERROR,
        ADVICE,
        "a queue promises a run time that is longer than its maximum",
        "preemptMinRuntime and reclaimMinRuntime protect a job that runs; maxRuntime of the queue, or of a queue above "
        "it, ends the job earlier. Make the promise shorter, or the maximum longer.",
    ),
    "Q022": Code(
        WARNING,
        ADVICE,
        "a run time of a queue is longer than the maximum that holds for it",
        "The maximum of a queue holds for everything below it, and queues below can only shorten it. The longer value "
        "has no effect.",
    ),
    "Q024": Code(
        WARNING,
        ADVICE,
        "a limit of users has no effect, because a lower one holds",
        "A user holds no more than the queue may use, and no more than a queue above lets the queue or the user hold.",
    ),
    "Q025": Code(
        WARNING,
        ADVICE,
        "a queue limits users, and users are not noted",
        "Without notes of users, all jobs of a namespace count for one user. The component user-notes of deploy, or "
        "userNotes.enabled of the chart, notes who created a job.",
    ),
    "Q030": Code(
        ERROR,
        ADVICE,
        "a part of a budget cannot be used",
        "The webhook refuses the queue. Without the webhook the scheduler leaves the budget out, so nothing is bounded "
        "by it.",
    ),
    "Q031": Code(
        WARNING,
        ADVICE,
        "a budget is larger than one of the same period above it",
        "The budget of the parent is used up first, and then nothing starts in the queue, even if its own budget has "
        "hours left.",
    ),
    "Q032": Code(
        WARNING,
        ADVICE,
        "a budget weighs a GPU model that no node has",
        "Models are those of the node label nvidia.com/gpu.product. A weight fits the whole of it, a pattern, or "
        "a word between its hyphens.",
    ),
    "Q033": Code(
        WARNING,
        ADVICE,
        "a period of a budget is longer than the history of usage is kept",
        "What was used at its begin is forgotten before it ends, so more may be used than the budget has. "
        "usageDBConfig.usageParams.extraParams.retention of the scheduler says how long the history is kept. kai lint "
        "reads it from a SchedulingShard of the input, and assumes the default of 90 days without one.",
    ),
    "J001": Code(
        ERROR,
        WAIT,
        "the queue of a job does not exist",
        "Its pods wait until there is a queue of that name. The label kai.scheduler/queue names the queue.",
    ),
    "J002": Code(
        ERROR,
        WAIT,
        "the queue of a job has children",
        "Only a leaf queue runs jobs; queues above divide what they have.",
    ),
    "J003": Code(
        WARNING,
        ADVICE,
        "a workload asks for GPUs, and another scheduler places its pods",
        "kai only looks at pods whose spec.schedulerName is kai-scheduler.",
    ),
    "J010": Code(
        ERROR,
        REFUSAL,
        "GPUs are whole devices, and requests equal limits",
        "Kubernetes refuses a part of a device as an amount. The annotation gpu-fraction asks for a part of a GPU. An "
        "amount that is negative or no number at all is F001.",
    ),
    "J011": Code(
        ERROR,
        REFUSAL,
        "gpu-fraction must be more than 0 and less than 1",
        "The annotation is the part of one GPU that the pod gets. For more, ask for whole GPUs, or for the same part "
        "of several devices with gpu-fraction-num-devices.",
    ),
    "J012": Code(
        ERROR,
        REFUSAL,
        "gpu-memory must be a whole number of MiB above 0",
        "The annotation is memory of one GPU in MiB.",
    ),
    "J013": Code(
        ERROR,
        REFUSAL,
        "a part of a GPU and whole GPUs are asked for together",
        "A pod has either whole GPUs in its resources, or a part by annotation.",
    ),
    "J014": Code(
        ERROR,
        REFUSAL,
        "gpu-fraction and gpu-memory are given together",
        "Both say how large a part of a GPU the pod gets; only one of them can count.",
    ),
    "J015": Code(
        ERROR,
        REFUSAL,
        "gpu-fraction-num-devices must be a whole number above 0, beside gpu-fraction or gpu-memory",
        "It says on how many devices the pod gets its part.",
    ),
    "J016": Code(
        ERROR,
        REFUSAL,
        "gpu-fraction-container-name names no container of the pod",
        "The named container gets the part of the GPU.",
    ),
    "J017": Code(
        ERROR,
        WAIT,
        "a gang needs more pods than its workload has",
        "The pods start together or not at all, so these would never start.",
    ),
    "J018": Code(
        ERROR,
        REFUSAL,
        "a workload cannot be expanded into pods, or its pods cannot be grouped",
        "Its controller, or the pod grouper, would refuse it for the same reason.",
    ),
    "J019": Code(
        WARNING,
        ADVICE,
        "kai does not expand the kind of a workload",
        "Its pods are for this scheduler, but kai neither simulates nor checks them. The message says how a cluster "
        "groups them. A Karta in the input describes such a kind to kai.",
    ),
    "J020": Code(
        ERROR,
        REFUSAL,
        "GPUs of a make that no node of the input offers",
        "The scheduler counts nvidia.com/gpu and amd.com/gpu alike, as KAI-Scheduler does, and binds the pod; its node "
        "then refuses it, since it has no such device.",
    ),
    "J021": Code(
        WARNING,
        ADVICE,
        "a label or an annotation is where it has no effect",
        "The name of a queue must be a label. Annotations about GPUs count only on pods, so put them into the "
        "metadata of the pod template. The controllers of some kinds do not copy labels to the objects that they "
        "make.",
    ),
    "J022": Code(
        WARNING,
        ADVICE,
        "a queue does not allow the namespace of a job",
        "The annotations kai.scheduler/allowed-namespaces and kai.scheduler/allowed-namespace-labels of a queue say "
        "which namespaces may use it. A scheduler with --queue-access=required does not start the job; others do.",
    ),
    "J023": Code(
        ERROR,
        REFUSAL,
        "the sub-groups of a pod group are no tree that can be scheduled",
        "Their names must differ, their parents must exist, none may be its own ancestor, they may nest 16 deep at "
        "most, and minSubGroup may be at most the number of children. Admission webhooks refuse such a group, and "
        "only warn of "
        "a minSubGroup that is too large; where there are none, its pods wait, or are scheduled as one flat group.",
    ),
    "J024": Code(
        ERROR,
        REFUSAL,
        "a field has a value that an API server refuses",
        "kai applies the rules of Kubernetes to what is not in a cluster yet: names, labels, containers, amounts, and "
        "what the controllers of Kubernetes ask of their templates.",
    ),
    "J025": Code(
        WARNING,
        ADVICE,
        "the node that a pod names is not in the input",
        "Such a pod runs nowhere, and what it asks for counts for its queue. Leave out spec.nodeName, or add the node.",
    ),
    "J026": Code(
        ERROR,
        WAIT,
        "a label of nodes is compared with something that is not a whole number",
        "Gt and Lt of a node affinity compare whole numbers of 64 bits. An API server takes any word here, and the "
        "comparison holds for no node, so the pod would wait for ever.",
    ),
    "J027": Code(
        WARNING,
        ADVICE,
        "minMember of a pod group with sub-groups does not count",
        "Each sub-group without children says with its own minMember how many of its pods start together.",
    ),
    "J028": Code(
        WARNING,
        ADVICE,
        "gpu-fraction is 1, a whole GPU",
        "The scheduler takes it. The admission webhooks, of kai as of KAI-Scheduler, refuse such a pod: a fraction is "
        "less than 1.",
    ),
    "J029": Code(
        WARNING,
        ADVICE,
        "a priority class that a job names does not exist",
        "kai ignores a label that names none: the job gets the next class that is named, else that of its kind, "
        "else train. A pod group whose class is none gets the global default, or 50. Without priority classes in the "
        "input only a likely misspelling is reported.",
    ),
    "J030": Code(
        ERROR,
        REFUSAL,
        "a priority class that pods name does not exist",
        "An API server refuses pods whose spec.priorityClassName is none. Without priority classes in the input only "
        "a likely misspelling is reported. Add the class to the input if the cluster has it.",
    ),
    "J031": Code(
        WARNING,
        ADVICE,
        "kai.scheduler/batch-min-member is on a workload of another kind",
        "It counts on Jobs, and on JobSets and their replicated Jobs. Other kinds say in fields of their own how many "
        "pods start together.",
    ),
    "J032": Code(
        ERROR,
        WAIT,
        "no node offers a resource, and another is spelled almost like it",
        "Pods that ask for what no node offers wait.",
    ),
    "J033": Code(
        WARNING,
        WAIT,
        "no node has a label that pods select, and some node has nearly the same",
        "Pods wait until there is a node with the key and the value of their nodeSelector. Without nodes in the input "
        "labels are not compared.",
    ),
    "J040": Code(
        WARNING,
        ADVICE,
        "an object in which the pods of a workload are described is not in this input",
        "A runtime, a template or a claim may be in the cluster already: kai would-run looks for it in the cluster, or "
        "in what --from names. Where it is in neither, the workload gets no pods, or pods without the rule of that "
        "object, as the message says.",
    ),
    "J041": Code(
        WARNING,
        WAIT,
        "a claim that a pod names does not exist",
        "Pods wait until there is a ResourceClaim, a ResourceClaimTemplate or a PersistentVolumeClaim of that name in "
        "their namespace. If the input has no nodes, kai does not look for claims.",
    ),
    "J042": Code(
        WARNING,
        ADVICE,
        "a workload names a queue, and another scheduler places its pods",
        "Its pods run outside of the quota of that queue. Some operators write the name of the scheduler into the pods "
        "that they make: --scheduler-name ray.io says so of KubeRay.",
    ),
    "J043": Code(
        WARNING,
        ADVICE,
        "a pod names a pod group of Kubernetes, which kai does not read",
        "spec.schedulingGroup is for kube-scheduler, and its PodGroup is of scheduling.k8s.io. kai starts such pods "
        "one by one, unless their controller or a PodGroup of scheduling.run.ai makes them a gang.",
    ),
    "J044": Code(
        WARNING,
        ADVICE,
        "a field that newer releases of an operator no longer have",
        "An API server drops a field that the definition of a kind lacks, with a warning at most. Kubeflow Trainer has "
        "runtimePatches in place of podTemplateOverrides since release 2.2.0.",
    ),
    "W001": Code(
        ERROR,
        REFUSAL,
        "an admission webhook refuses the object",
        "kai asks the webhooks' own rules, with pods that may share GPUs. The scheduler may take what they refuse: in "
        "a cluster without webhooks, or in a simulation. What comes from an API server is not looked at.",
    ),
    "C001": Code(
        ERROR,
        REFUSAL,
        "the configuration of the scheduler is refused",
        "The scheduler would not start with it.",
    ),
    "C002": Code(
        WARNING,
        ADVICE,
        "something in the configuration of the scheduler has no effect, or an unusual one",
        "The scheduler starts with it, and says the same in its log.",
    ),
    "A001": Code(
        ERROR,
        REFUSAL,
        "an annotation of the simulation has a value that it cannot have",
        "Annotations below simulation.kai.scheduler/ say when a workload arrives and how long it runs.",
    ),
    "A002": Code(
        ERROR,
        REFUSAL,
        "there is no such annotation of the simulation",
        "Annotations below simulation.kai.scheduler/ count only for kai simulate, which knows each of them.",
    ),
    "A003": Code(
        WARNING,
        ADVICE,
        "an annotation of the simulation is where it has no effect",
        "kai simulate reads the annotations of workloads: of a Job, or of a pod group, and not those of its pods.",
    ),
    "K001": Code(
        ERROR,
        REFUSAL,
        "a cluster file has a value that it cannot have",
        "The file describes nodes by shapes, queues, and what happens to nodes over time.",
    ),
    "K002": Code(ERROR, REFUSAL, "a cluster file has a key that does not exist", "It would have no effect."),
    "R001": Code(
        ERROR,
        REFUSAL,
        "a row of a trace cannot be used",
        "With --skip-bad-rows kai leaves such rows out and reports their number.",
    ),
    "R002": Code(
        ERROR,
        REFUSAL,
        "a trace lacks columns that its format needs",
        "What each format needs is written in its column map, a data file in kai/lab/traces/formats.",
    ),
    "S001": Code(
        ERROR, REFUSAL, "a scenario cannot be used", "The format is described in kai/lab/scenarios/shorthand.py."
    ),
}
"""All codes in the order of their pages."""
