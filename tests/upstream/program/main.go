// Program upstream answers what Kubernetes' own code makes of drawn inputs: one JSON document a line in, one answer a
// line out.
//
//	upstream devices    a cluster of devices: which devices each pod gets on one node
//	upstream requests   a pod: what the scheduler counts for it
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// cluster is one input of "devices": the pods, each a list of claims by name, are served in their order on node.
type cluster struct {
	Node    v1.Node                     `json:"node"`
	Classes []resourceapi.DeviceClass   `json:"classes"`
	Slices  []resourceapi.ResourceSlice `json:"slices"`
	Claims  []resourceapi.ResourceClaim `json:"claims"`
	Pods    [][]string                  `json:"pods"`
}

// device is one device of an answer.
type device struct {
	Claim    string            `json:"claim"`
	Request  string            `json:"request"`
	Pool     string            `json:"pool"`
	Device   string            `json:"device"`
	Consumed map[string]string `json:"consumed,omitempty"`
}

// answer says which devices a pod gets. Aborts says that the scheduler gives up the pod on all nodes, and why.
type answer struct {
	Devices []device `json:"devices"`
	Aborts  string   `json:"aborts,omitempty"`
}

type classLister map[string]*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	out := make([]*resourceapi.DeviceClass, 0, len(l))
	for _, each := range l {
		out = append(out, each)
	}
	return out, nil
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	if found, ok := l[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("device class %s: not found", name)
}

// features are those that kube-scheduler has on by default; one release has fields that another has not.
func features() structured.Features {
	var found structured.Features
	fields := reflect.ValueOf(&found).Elem()
	for _, name := range []string{
		"AdminAccess", "PrioritizedList", "PartitionableDevices", "DeviceTaints", "DeviceBindingAndStatus",
		"ConsumableCapacity", "FractionalCapacityRange",
	} {
		if field := fields.FieldByName(name); field.IsValid() {
			field.SetBool(true)
		}
	}
	return found
}

// taken is what allocated claims hold, as the scheduler gathers it.
func taken(claims []resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

func devices(line []byte) (any, error) {
	var given cluster
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	lister := classLister{}
	for i := range given.Classes {
		lister[given.Classes[i].Name] = &given.Classes[i]
	}
	slices := make([]*resourceapi.ResourceSlice, len(given.Slices))
	for i := range given.Slices {
		slices[i] = &given.Slices[i]
	}
	claims := map[string]*resourceapi.ResourceClaim{}
	for i := range given.Claims {
		given.Claims[i].UID = types.UID(given.Claims[i].Name)
		claims[given.Claims[i].Name] = &given.Claims[i]
	}
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})
	answers := make([]answer, len(given.Pods))
	for i, names := range given.Pods {
		var open []*resourceapi.ResourceClaim
		for _, name := range names {
			if claims[name].Status.Allocation == nil {
				open = append(open, claims[name])
			}
		}
		found, err := serve(&given, slices, lister, cache, open)
		if err != nil {
			if !errors.Is(err, structured.ErrFailedAllocationOnNode) {
				answers[i].Aborts = err.Error()
			}
			continue
		}
		answers[i].Devices = found
	}
	return answers, nil
}

// serve allocates the claims of one pod and writes what they get into them; without a place for them it returns nil.
func serve(
	given *cluster, slices []*resourceapi.ResourceSlice, lister classLister, cache *cel.Cache,
	open []*resourceapi.ResourceClaim,
) ([]device, error) {
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features(), taken(given.Claims), lister, slices, cache)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, &given.Node, open)
	if err != nil || results == nil {
		return nil, err
	}
	found := []device{}
	for i := range results {
		open[i].Status.Allocation = &results[i]
		for _, each := range results[i].Devices.Results {
			consumed := map[string]string{}
			for name, amount := range each.ConsumedCapacity {
				consumed[string(name)] = amount.String()
			}
			found = append(found, device{open[i].Name, each.Request, each.Pool, each.Device, consumed})
		}
	}
	return found, nil
}

func requests(line []byte) (any, error) {
	var pod v1.Pod
	if err := json.Unmarshal(line, &pod); err != nil {
		return nil, err
	}
	// As the scheduler counts pods on nodes, whose gates for this are on by default.
	counted := resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	out := map[string]string{}
	for name, amount := range counted {
		out[string(name)] = amount.String()
	}
	return out, nil
}

func run(answer func([]byte) (any, error), in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	written := bufio.NewWriter(out)
	defer written.Flush()
	encoder := json.NewEncoder(written)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			found, failure := answer(line)
			if failure != nil {
				return fmt.Errorf("line %d: %w", number, failure)
			}
			if failure := encoder.Encode(found); failure != nil {
				return failure
			}
			if lines.Buffered() == 0 {
				written.Flush()
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	ways := map[string]func([]byte) (any, error){"devices": devices, "requests": requests}
	if len(os.Args) != 2 || ways[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: upstream devices|requests")
		os.Exit(2)
	}
	if err := run(ways[os.Args[1]], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}
