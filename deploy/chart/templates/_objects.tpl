{{/* The files that the values ask for, in the order in which they are shown. */}}
{{- define "kai.files" -}}
{{- if eq .Values.form "shadow" }}
- shadow
{{- else }}
{{- if .Values.lasting }}
- lasting
{{- end }}
- prerequisites
{{- if .Values.networkPolicies }}
- network-policies
{{- end }}
{{- if .Values.policies }}
- policies
{{- end }}
- {{ .Values.form }}
{{- if .Values.webhooks.enabled }}
- {{ eq .Values.webhooks.certificates "own" | ternary "webhooks" "webhooks-cert-manager" }}
{{- end }}
{{- if .Values.monitoring.enabled }}
- monitoring
{{- end }}
{{- if .Values.dashboard.enabled }}
- dashboard
{{- end }}
{{- if eq .Values.queueAccess "required" }}
- queue-access
{{- end }}
{{- if .Values.userNotes.enabled }}
- user-notes
{{- end }}
{{- end }}
{{- end }}

{{/* A file of manifests, with the namespace of the release where ours stands. */}}
{{- define "kai.text" -}}
{{- $text := .root.Files.Get (printf "files/%s.yaml" .file) | required (printf "chart: file %s: found none" .file) -}}
{{- $text = regexReplaceAll "(?m)namespace: kai-scheduler$" $text (printf "namespace: %s" .root.Release.Namespace) -}}
{{- $text = regexReplaceAll "(?m)^(\\s*)- kai-scheduler$" $text (printf "${1}- %s" .root.Release.Namespace) -}}
{{- $text = replace "''system:serviceaccount:kube-system:*''" (printf "''%s''" (join "'', ''" .root.Values.userNotes.controllers)) $text -}}
{{- $text = replace ".kai-scheduler.svc" (printf ".%s.svc" .root.Release.Namespace) $text -}}
{{- replace "inject-ca-from: kai-scheduler/" (printf "inject-ca-from: %s/" .root.Release.Namespace) $text -}}
{{- end }}

{{/* The names of all Deployments, of whatever form, and of the shards. */}}
{{- define "kai.deployments" -}}
- kai
- admission
- binder
- kai-scheduler-default
- kai-shadow
- node-scale-adjuster
- pod-grouper
- podgroup-controller
- queue-controller
{{- range .Values.shards }}
- kai-scheduler-{{ .name }}
{{- end }}
{{- end }}

{{/* Refuses what the schema cannot; prints nothing. */}}
{{- define "kai.check" -}}
{{- $values := .Values -}}
{{- if and $values.shards (ne $values.form "split") -}}
{{- fail (printf "shards: found %d with form %q, expected form \"split\"" (len $values.shards) $values.form) -}}
{{- end -}}
{{- if and $values.webhooks.deviceAccess (not $values.webhooks.enabled) -}}
{{- fail "webhooks.deviceAccess: found true with webhooks.enabled false, expected true for both: webhooks refuse these pods" -}}
{{- end -}}
{{- if and $values.userNotes.enabled (or (not $values.webhooks.enabled) (eq $values.form "shadow")) -}}
{{- fail "userNotes.enabled: found true without the webhooks that write notes, expected webhooks.enabled true and another form than shadow" -}}
{{- end -}}
{{- range $account := $values.userNotes.controllers -}}
{{- if not (regexMatch "^[^\\s*'\"\\\\]+[*]?$" $account) -}}
{{- fail (printf "userNotes.controllers: found %q, expected the name of an account, or how names begin and then *: system:serviceaccount:ray-system:*" $account) -}}
{{- end -}}
{{- end -}}
{{- range $label := list "app" "app.kubernetes.io/part-of" -}}
{{- if hasKey ($values.podLabels | default dict) $label -}}
{{- fail (printf "podLabels: found %q, by which kai's own pods are found, expected other labels" $label) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.form "shadow") (gt (int $values.replicas) 1) -}}
{{- fail (printf "replicas: found %d with form \"shadow\", expected 1" (int $values.replicas)) -}}
{{- end -}}
{{- if $values.history.enabled -}}
{{- if gt (int $values.replicas) 1 -}}
{{- fail (printf "history.enabled: found true with replicas %d, expected replicas 1: one node mounts the volume" (int $values.replicas)) -}}
{{- end -}}
{{- if eq $values.form "shadow" -}}
{{- fail "history.enabled: found true with form \"shadow\", expected false: a shadow records nothing" -}}
{{- end -}}
{{- end -}}
{{- range $field := list "name" "nodePool" -}}
{{- $seen := dict -}}
{{- range $shard := $values.shards -}}
{{- $found := get $shard $field -}}
{{- if hasKey $seen $found }}{{ fail (printf "shards: found two with %s %q, expected one" $field $found) }}{{ end -}}
{{- $_ := set $seen $found true -}}
{{- end -}}
{{- end -}}
{{- $known := include "kai.deployments" . | fromYamlArray -}}
{{- range $value := list "resources" "extraArgs" "extraEnv" "extraVolumes" "extraVolumeMounts" -}}
{{- range $name, $_ := get $values $value | default dict -}}
{{- if not (has $name $known) -}}
{{- fail (printf "%s: found %q, expected the name of a Deployment: %s" $value $name (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The name of the Deployment that decides. */}}
{{- define "kai.scheduler" -}}
{{- get (dict "single" "kai" "split" "kai-scheduler-default" "shadow" "kai-shadow") .Values.form -}}
{{- end }}

{{- define "kai.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Changes an object as the values say; prints nothing. */}}
{{- define "kai.adjust" -}}
{{- $object := .object -}}
{{- $labels := $object.metadata.labels -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- if eq .file "lasting" -}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") -}}
{{- end -}}
{{- if and (eq .file "monitoring") (ne $object.kind "ConfigMap") -}}
{{- range $name, $value := .root.Values.monitoring.labels }}{{ $_ := set $labels $name $value }}{{ end -}}
{{- end -}}
{{- if and (eq $object.kind "ServiceAccount") (ne $object.metadata.namespace .root.Release.Namespace) -}}
{{- with .root.Values.imagePullSecrets }}{{ $_ := set $object "imagePullSecrets" . }}{{ end -}}
{{- end -}}
{{- if and (eq .file "user-notes") (eq $object.kind "MutatingWebhookConfiguration") (ne .root.Values.webhooks.certificates "own") -}}
{{- $_ := set $object.metadata "annotations" (dict "cert-manager.io/inject-ca-from" (printf "%s/kai-webhooks" .root.Release.Namespace)) -}}
{{- end -}}
{{- if eq $object.kind "Deployment" }}{{ include "kai.deployment" . }}{{ end -}}
{{- if .root.Values.openshift }}{{ include "kai.openshift" . }}{{ end -}}
{{- if .root.Values.webhooks.deviceAccess }}{{ include "kai.device-access" . }}{{ end -}}
{{- end }}

{{- define "kai.device-access" -}}
{{- $object := .object -}}
{{- $name := $object.metadata.name -}}
{{- if eq $name "kai-pod-mutation" -}}
{{- $hook := first $object.webhooks }}{{ $_ := set $hook "matchConditions" (list (first $hook.matchConditions)) -}}
{{- else if eq $name "kai-pod-validation" -}}
{{- $_ := set (first $object.webhooks) "failurePolicy" "Fail" -}}
{{- end -}}
{{- if has $name (list "kai-pod-mutation" "kai-pod-validation") -}}
{{- $hook := first $object.webhooks -}}
{{- $added := dict "apiGroups" (list "") "apiVersions" (list "v1") "resources" (list "pods/ephemeralcontainers") "operations" (list "UPDATE") -}}
{{- $_ := set $hook "rules" (append $hook.rules $added) -}}
{{- end -}}
{{- end }}

{{/* OpenShift chooses the user of a pod, and asks who may block the deletion of an owner. */}}
{{- define "kai.openshift" -}}
{{- $object := .object -}}
{{- if eq $object.kind "Deployment" -}}
{{- $user := $object.spec.template.spec.securityContext -}}
{{- $_ := unset $user "runAsUser" }}{{ $_ := unset $user "runAsGroup" -}}
{{- else if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "kai:binder") -}}
{{- $rule := dict "apiGroups" (list "") "resources" (list "pods/finalizers") "verbs" (list "update") -}}
{{- $_ := set $object "rules" (append $object.rules $rule) -}}
{{- end -}}
{{- end }}

{{/* A Deployment: its image, replicas, place and arguments. */}}
{{- define "kai.deployment" -}}
{{- $values := .root.Values -}}
{{- $spec := .object.spec -}}
{{- $template := $spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- $name := .object.metadata.name -}}
{{- $isAdmission := eq $name "admission" -}}
{{- $isShadow := eq $values.form "shadow" -}}
{{- $decides := or $isShadow (eq $name "kai") (hasPrefix "kai-scheduler-" $name) -}}
{{- $_ := set $container "image" (include "kai.image" .root) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- with $values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- with index ($values.resources | default dict) $name }}{{ $_ := set $container "resources" (mergeOverwrite (deepCopy $container.resources) .) }}{{ end -}}
{{- $replicas := $isAdmission | ternary $values.webhooks.replicas $values.replicas -}}
{{- $_ := set $spec "replicas" $replicas -}}
{{- if gt (int $values.replicas) 1 -}}
{{- if not $isAdmission }}{{ $_ := set $container "args" (append $container.args "--leader-elect=true") }}{{ end -}}
{{- $_ := set $spec "strategy" (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" 0 "maxUnavailable" 1)) -}}
{{- $apart := $pod.affinity.podAntiAffinity -}}
{{- $term := (first $apart.preferredDuringSchedulingIgnoredDuringExecution).podAffinityTerm -}}
{{- $_ := set $pod.affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- with $values.affinity }}{{ $_ := set $pod "affinity" . }}{{ end -}}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- with $values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- if not $isShadow }}{{ $_ := set $pod "priorityClassName" $values.priorityClassName }}{{ end -}}
{{- range $key, $value := $values.podLabels }}{{ $_ := set $template.metadata.labels $key $value }}{{ end -}}
{{- $annotations := deepCopy ($values.podAnnotations | default dict) -}}
{{- if and $isAdmission $values.webhooks.deviceAccess -}}
{{- $_ := set $container "args" (append $container.args "--block-nvidia-visible-devices=true") -}}
{{- end -}}
{{- if and $decides $values.dashboard.enabled (not .shard) (not $isShadow) -}}
{{- $_ := set $container "args" (concat $container.args (list "--dashboard=:8085" "--dashboard-auth=token")) -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "dashboard" "containerPort" 8085)) -}}
{{- $_ := set $template.metadata.labels "kai.scheduler/dashboard" "served" -}}
{{- end -}}
{{- if and $decides (eq $values.queueAccess "required") -}}
{{- $_ := set $container "args" (append $container.args "--queue-access=required") -}}
{{- end -}}
{{- $configuration := $values.scheduler.configuration -}}
{{- with .shard -}}
{{- $_ := set $container "args" (append $container.args (printf "--partition-label-value=%s" .nodePool)) -}}
{{- $configuration = .configuration -}}
{{- end -}}
{{- if and $decides $configuration -}}
{{- $map := printf "%s-configuration" $name -}}
{{- $_ := set $container "args" (append $container.args "--config=/configuration/config.yaml") -}}
{{- $_ := set $container "volumeMounts" (append ($container.volumeMounts | default list) (dict "name" "configuration" "mountPath" "/configuration" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (append ($pod.volumes | default list) (dict "name" "configuration" "configMap" (dict "name" $map))) -}}
{{- $_ := set $annotations "kai.scheduler/configuration-checksum" ($configuration | toYaml | sha256sum) -}}
{{- end -}}
{{- if and $decides $values.history.enabled -}}
{{- $claim := include "kai.claim" (dict "root" .root "name" $name) -}}
{{- $_ := set $container "volumeMounts" (append ($container.volumeMounts | default list) (dict "name" "history" "mountPath" "/var/lib/kai")) -}}
{{- $_ := set $pod "volumes" (append ($pod.volumes | default list) (dict "name" "history" "persistentVolumeClaim" (dict "claimName" $claim))) -}}
{{- if not $values.openshift }}{{ $_ := set $pod.securityContext "fsGroup" 65532 }}{{ end -}}
{{- end -}}
{{- with index ($values.extraEnv | default dict) $name }}{{ $_ := set $container "env" (concat $container.env .) }}{{ end -}}
{{- with index ($values.extraVolumes | default dict) $name }}{{ $_ := set $pod "volumes" (concat ($pod.volumes | default list) .) }}{{ end -}}
{{- with index ($values.extraVolumeMounts | default dict) $name }}{{ $_ := set $container "volumeMounts" (concat ($container.volumeMounts | default list) .) }}{{ end -}}
{{- range index ($values.extraArgs | default dict) $name }}{{ $_ := set $container "args" (append $container.args .) }}{{ end -}}
{{- if $annotations }}{{ $_ := set $template.metadata "annotations" $annotations }}{{ end -}}
{{- end }}

{{/* The name of the claim for the history that a Deployment records. */}}
{{- define "kai.claim" -}}
{{- if ne .name (include "kai.scheduler" .root) }}{{ .name }}-history{{ else }}{{ .root.Values.history.existingClaim | default "kai-history" }}{{ end -}}
{{- end }}

{{/* A claim for the history that a Deployment records. It stays after an uninstall, as the history should. */}}
{{- define "kai.history" }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "kai.claim" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: kai
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: [ReadWriteOnce]
  {{- with .root.Values.history.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .root.Values.history.size }}
{{- end }}

{{/* The configuration of a scheduler, as a file. */}}
{{- define "kai.configuration" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}-configuration
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: kai
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
data:
  config.yaml: |
    {{- toYaml .configuration | nindent 4 }}
{{- end }}
