//! Layers that one kernel takes together: planned, reported, undone.

use std::sync::Arc;

use kernelhub::bind::{Contract, LayerKernel, Rounding};
use kernelhub::dtype::DType;
use kernelhub::hint::Hint as _;
use kernelhub::swap::{
    GroupOutcome, GroupSpec, KernelConfig, KernelProvider, KernelRef, Mode, Outcome, ProvideError, Reason, Report,
    Slot, SlotSpec, Slots, SwapError,
};
use kernelhub::variant::DeviceKey;

use super::config;
use crate::support::native::{NativePack, layer, norm_layer};

const NORM: &str = "kernelhub-tests/groups@v1:RMSNorm";
const FUSED: &str = "kernelhub-tests/groups@v1:FusedNorm";

fn pack() -> NativePack {
    let narrow = norm_layer("Narrow", "count_rms_norm") + "limits = { last_dim_multiple_of = 16 }\n";
    let layers = [norm_layer("RMSNorm", "count_rms_norm"), norm_layer("FusedNorm", "permuted"), narrow].concat();
    NativePack::kit("groups", &layers)
}

fn spec(path: &str, layer: &str) -> SlotSpec {
    let (path, layer) = (path.to_owned(), layer.to_owned());
    SlotSpec {
        path,
        layer,
        contract: Contract::RmsNorm,
        dtype: DType::F32,
        last_dim: 8,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::F32WeightF32,
    }
}

/// Two blocks, each with two norms of which the first and a gate are a group, and a norm at the end.
struct Model {
    slots: Slots,
    /// `[norm, gate, whole]` of each block.
    blocks: Vec<[Slot; 3]>,
    last: Slot,
}

fn model() -> Model {
    let slots = Slots::new(DeviceKey::Cpu);
    let block = |index: usize| {
        let norm = slots.slot(spec(&format!("layers.{index}.norm"), "RMSNorm"));
        let gate = slots.slot(spec(&format!("layers.{index}.gate"), "Gate"));
        let fused = spec(&format!("layers.{index}.norm_and_gate"), "FusedNorm");
        let whole = slots.group(GroupSpec { fused, members: vec![norm.clone(), gate.clone()] }).unwrap();
        [norm, gate, whole]
    };
    let blocks = (0..2).map(block).collect();
    let last = slots.slot(spec("norm", "RMSNorm"));
    Model { slots, blocks, last }
}

impl Model {
    /// Which slots have a kernel: of each block norm, gate and whole, then the last norm.
    fn kernels(&self) -> Vec<bool> {
        let plan = self.slots.pin();
        self.blocks.iter().flatten().chain([&self.last]).map(|slot| plan.kernel(slot).is_some()).collect()
    }
}

fn counts(report: &Report) -> (usize, usize) {
    (report.swapped(), report.total())
}

#[test]
fn a_kernel_for_the_fused_layer_takes_every_member() {
    let (pack, model) = (pack(), model());
    let config = config(&[("RMSNorm", NORM), ("FusedNorm", FUSED)]);
    let report = model.slots.use_kernels(&pack.hub(), &config).unwrap();
    assert_eq!(counts(&report), (5, 5), "each member counts once, the group itself not");
    assert_eq!(model.kernels(), [false, false, true, false, false, true, true]);
    let paths: Vec<_> = report.layers.iter().map(|line| line.path.as_str()).collect();
    assert_eq!(paths, ["layers.0.norm", "layers.0.gate", "layers.1.norm", "layers.1.gate", "norm"]);
    for line in &report.layers[..4] {
        let whole = format!("{}.norm_and_gate", &line.path[..8]);
        assert!(
            matches!(&line.outcome, Outcome::Fused { into, kernel } if *into == whole && kernel.to_string() == FUSED),
            "{line:?}"
        );
    }
    assert!(matches!(&report.layers[4].outcome, Outcome::Kernel(kernel) if kernel.to_string() == NORM));
    let [group, _] = &report.groups[..] else { panic!("{report:?}") };
    assert_eq!((group.path.as_str(), group.layer.as_str()), ("layers.0.norm_and_gate", "FusedNorm"));
    assert_eq!(group.members, ["layers.0.norm", "layers.0.gate"]);
    assert!(matches!(&group.outcome, GroupOutcome::Fused(kernel) if kernel.to_string() == FUSED));
    assert_eq!(report.kernels().iter().map(ToString::to_string).collect::<Vec<_>>(), [FUSED, NORM]);
    let text = report.to_string();
    assert!(text.contains(&format!("2 x Gate     in FusedNorm: {FUSED}  ")), "{text}");
    assert!(text.ends_with("5 of 5 layers swapped for inference on cpu"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["layers"][1]["outcome"]["fused"]["into"], "layers.0.norm_and_gate");
    assert_eq!(json["groups"][1]["outcome"]["fused"]["layer"], "FusedNorm");
}

#[test]
fn a_group_comes_apart_again() {
    let (pack, model) = (pack(), model());
    let config = config(&[("RMSNorm", NORM), ("FusedNorm", FUSED)]);
    let fused = model.slots.use_kernels(&pack.hub(), &config).unwrap();
    let taken = model.kernels();

    let report = model.slots.set_mode(Mode::Training);
    assert_eq!((counts(&report), model.kernels()), ((0, 5), vec![false; 7]));
    for group in &report.groups {
        assert!(matches!(&group.outcome, GroupOutcome::Apart(Reason::NoBackward { .. })), "{group:?}");
    }
    assert_eq!((model.slots.set_mode(Mode::Inference), model.kernels()), (fused.clone(), taken.clone()));

    let report = model.slots.disable_kernels();
    assert_eq!((counts(&report), model.kernels()), ((0, 5), vec![false; 7]));
    assert!(report.groups.iter().all(|group| group.outcome == GroupOutcome::Apart(Reason::KernelsOff)));
    assert_eq!(model.slots.use_kernels(&pack.hub(), &config).unwrap(), fused);
    assert_eq!(model.slots.report(), fused);
}

/// Plans and returns what became of the first group.
fn first_group(model: &Model, config: &KernelConfig) -> (Report, GroupOutcome) {
    let report = model.slots.use_kernels(&pack().hub(), config).unwrap();
    let outcome = report.groups[0].outcome.clone();
    (report, outcome)
}

#[test]
fn members_are_planned_alone_where_no_kernel_takes_them_all() {
    let model = model();
    let (report, outcome) = first_group(&model, &config(&[("RMSNorm", NORM)]));
    assert_eq!(outcome, GroupOutcome::Apart(Reason::NotMapped { device: DeviceKey::Cpu, mode: Mode::Inference }));
    assert_eq!((counts(&report), model.kernels()), ((3, 5), vec![true, false, false, true, false, false, true]));
    let text = report.to_string();
    assert!(
        text.contains("2 x FusedNorm  not fused, its 2 layers stand for themselves: no kernel is mapped"),
        "{text}"
    );

    let narrow = config(&[("RMSNorm", NORM), ("FusedNorm", "kernelhub-tests/groups@v1:Narrow")]);
    let (report, outcome) = first_group(&model, &narrow);
    assert!(matches!(&outcome, GroupOutcome::Apart(Reason::Limit { .. })), "{outcome:?}");
    assert_eq!(counts(&report), (3, 5));

    let disabled = config(&[("RMSNorm", NORM), ("Gate", "Disabled"), ("FusedNorm", FUSED)]);
    let (report, outcome) = first_group(&model, &disabled);
    assert_eq!(outcome, GroupOutcome::Apart(Reason::MemberDisabled { path: "layers.0.gate".to_owned() }));
    assert_eq!((counts(&report), model.kernels()), ((3, 5), vec![true, false, false, true, false, false, true]));
}

#[test]
fn a_trained_member_keeps_the_group_from_a_kernel_without_a_backward() {
    let slots = Slots::new(DeviceKey::Cpu);
    let norm = slots.slot(SlotSpec { trainable: true, ..spec("norm", "RMSNorm") });
    let whole = slots.group(GroupSpec { fused: spec("whole", "FusedNorm"), members: vec![norm] }).unwrap();
    let other = slots.slot(spec("other", "RMSNorm"));
    let report = slots.use_kernels(&pack().hub(), &config(&[("RMSNorm", NORM), ("FusedNorm", FUSED)])).unwrap();
    assert!(matches!(&report.groups[0].outcome, GroupOutcome::Apart(Reason::NoBackward { trainable: true, .. })));
    let plan = slots.pin();
    assert!(plan.kernel(&whole).is_none() && plan.kernel(&other).is_some());
}

#[test]
fn what_cannot_be_a_group_is_refused_and_changes_nothing() {
    let (slots, elsewhere) = (Slots::new(DeviceKey::Cpu), Slots::new(DeviceKey::Cpu));
    let [first, second] = ["first", "second"].map(|path| slots.slot(spec(path, "RMSNorm")));
    let foreign = elsewhere.slot(spec("foreign", "RMSNorm"));
    let group = |members: &[&Slot]| {
        let members = members.iter().map(|slot| (*slot).clone()).collect();
        slots.group(GroupSpec { fused: spec("whole", "FusedNorm"), members })
    };
    let refused = |members: &[&Slot], expected: &str| {
        let error = group(members).unwrap_err();
        assert!(matches!(&error, SwapError::Group { path, .. } if path == "whole"), "{error:?}");
        assert_eq!(error.to_string(), format!("whole: no group FusedNorm: {expected}"));
        assert!(slots.report().groups.len() <= 1);
    };
    refused(&[], "it has no members");
    refused(&[&first, &foreign], "a member belongs to another model");
    refused(&[&first, &first], "first is a member twice");
    assert_eq!(slots.report().groups.len(), 0);
    let whole = group(&[&first]).unwrap();
    refused(&[&second, &first], "first is in the group whole (FusedNorm) already");
    refused(&[&whole], "whole is in the group whole (FusedNorm) already");
    assert_eq!(slots.report().total(), 2);
    group(&[&second]).unwrap();
    assert_eq!(slots.report().groups.len(), 2);
}

/// A configuration whose fusion names the members of every block.
fn fusion(kernel: &str) -> KernelConfig {
    let members = [("RMSNorm", "layers.*.norm"), ("Gate", "layers.*.gate")];
    KernelConfig::builder().fusion(&members, kernel).unwrap().build()
}

#[test]
fn a_fusion_is_for_every_group_of_its_members() {
    let (pack, model) = (pack(), model());
    let report = model.slots.use_kernels(&pack.hub(), &fusion(FUSED)).unwrap();
    assert_eq!((counts(&report), model.kernels()), ((4, 5), vec![false, false, true, false, false, true, false]));
    assert!(report.groups.iter().all(|group| matches!(&group.outcome, GroupOutcome::Fused(_))), "{report}");
    // One block alone, its members in another order; the other is planned by the layer's name, where there is one.
    let members = [("Gate", "layers.1.gate"), ("RMSNorm", "layers.1.norm")];
    let one = KernelConfig::builder().fusion(&members, FUSED).unwrap();
    let report = model.slots.use_kernels(&pack.hub(), &one.build()).unwrap();
    assert_eq!((counts(&report), model.kernels()), ((2, 5), vec![false, false, false, false, false, true, false]));
    let named = KernelConfig::builder()
        .fusion(&members, "Disabled")
        .and_then(|builder| builder.kernel("FusedNorm", DeviceKey::Cpu, FUSED))
        .unwrap();
    let report = model.slots.use_kernels(&pack.hub(), &named.build()).unwrap();
    assert_eq!(report.groups[1].outcome, GroupOutcome::Apart(Reason::Disabled));
    assert!(matches!(report.groups[0].outcome, GroupOutcome::Fused(_)));
}

#[test]
fn a_fusion_without_a_group_and_a_group_with_two_fusions_are_errors() {
    let (pack, model) = (pack(), model());
    let before = model.slots.use_kernels(&pack.hub(), &fusion(FUSED)).unwrap();
    let refused = |config: KernelConfig| {
        let error = model.slots.use_kernels(&pack.hub(), &config).unwrap_err();
        assert_eq!(model.slots.report(), before, "an error changes nothing");
        error
    };
    for members in [
        [("RMSNorm", "layers.*.norm"), ("Gate", "layers.*.other")],
        [("RMSNorm", "layers.*.norm"), ("Gates", "layers.*.gate")],
        [("RMSNorm", "blocks.*.norm"), ("Gate", "blocks.*.gate")],
    ] {
        let error = refused(KernelConfig::builder().fusion(&members, FUSED).unwrap().build());
        assert!(matches!(&error, SwapError::FusionUnmatched { groups, .. } if groups.len() == 2), "{error:?}");
        let text = error.to_string();
        let [first, second] = members.map(|(layer, pattern)| format!("{layer} {pattern}"));
        let expected = format!("no layers of the model can be fused as {first} + {second}; its groups are: ");
        assert!(text.starts_with(&expected) && text.contains("layers.1.norm + layers.1.gate"), "{text}");
        assert!(error.hint().unwrap().contains("whole path"));
    }
    let every = [("RMSNorm", "layers.*.norm"), ("Gate", "layers.*.gate")];
    let one = [("RMSNorm", "layers.1.norm"), ("Gate", "layers.1.gate")];
    let twice = KernelConfig::builder().fusion(&every, FUSED).and_then(|builder| builder.fusion(&one, FUSED));
    let error = refused(twice.unwrap().build());
    assert!(matches!(&error, SwapError::FusionTwice { path, .. } if path == "layers.1.norm_and_gate"), "{error:?}");
    // A model that declares no groups says so.
    let slots = Slots::new(DeviceKey::Cpu);
    let _norm = slots.slot(spec("layers.0.norm", "RMSNorm"));
    let error = slots.use_kernels(&pack.hub(), &fusion(FUSED)).unwrap_err();
    assert!(error.to_string().ends_with("its groups are: none") && error.hint().unwrap().contains("Slots::group"));
}

/// A list for a group: what came before the kernel that took it stands in its line.
#[test]
fn a_group_says_which_kernels_were_tried() {
    let (pack, model) = (pack(), model());
    let text = format!("inherit = false\nFusedNorm = ['kernelhub-tests/groups@v1:Narrow', '{FUSED}']");
    let report = model.slots.use_kernels(&pack.hub(), &KernelConfig::from_toml(&text, "x").unwrap()).unwrap();
    let group = &report.groups[0];
    assert!(matches!(&group.outcome, GroupOutcome::Fused(kernel) if kernel.to_string() == FUSED));
    assert_eq!(group.tried.len(), 1);
    assert_eq!(group.tried[0].kernel, "kernelhub-tests/groups@v1:Narrow");
    assert!(report.to_string().contains("; before it kernelhub-tests/groups@v1:Narrow: "), "{report}");
}

/// The default table has a kernel for a norm after an add; the application wants none for norms.
#[test]
fn what_disables_the_members_of_a_group_asks_for_nothing_of_the_whole() {
    let slots = Slots::new(DeviceKey::Cpu);
    let norm = slots.slot(spec("norm", "RMSNorm"));
    let fused = SlotSpec { contract: Contract::AddRmsNorm, ..spec("norm.add", "AddRMSNorm") };
    let _ = slots.group(GroupSpec { fused, members: vec![norm] }).unwrap();
    let config = KernelConfig::from_toml("RMSNorm = \"Disabled\"", "x").unwrap();
    let report = slots.use_kernels(&super::NoKernels, &config).unwrap();
    assert_eq!(counts(&report), (0, 1));
    assert_eq!(report.groups[0].outcome, GroupOutcome::Apart(Reason::MemberDisabled { path: "norm".to_owned() }));
    let preview = slots.preview(&config, DeviceKey::Cpu, Mode::Inference).unwrap();
    assert_eq!((preview.picked(), preview.layers.len(), preview.kernels.len()), (0, 1, 0), "{preview}");
}

/// Has every layer of every kernel.
struct Everything(NativePack);

impl KernelProvider for Everything {
    fn provide(&self, _: &KernelRef, layer: &str, _: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        Ok(self.0.layer(layer).unwrap())
    }
}

#[test]
fn a_kernel_that_the_application_names_for_a_member_comes_before_a_default_for_the_whole() {
    let add =
        layer("AddRMSNorm", "add_rms_norm", "refuses", &["out", "residual_out", "x", "residual", "weight", "eps"]);
    let everything = Everything(NativePack::kit("members", &(norm_layer("RMSNorm", "count_rms_norm") + &add)));
    let slots = Slots::new(DeviceKey::Cpu);
    let norm = slots.slot(spec("norm", "RMSNorm"));
    let fused = SlotSpec { contract: Contract::AddRmsNorm, ..spec("norm.add", "AddRMSNorm") };
    let _ = slots.group(GroupSpec { fused, members: vec![norm] }).unwrap();
    let outcome = |text: &str| {
        let config = KernelConfig::from_toml(text, "x").unwrap();
        let report = slots.use_kernels(&everything, &config).unwrap();
        assert_eq!(counts(&report), (1, 1));
        let preview = slots.preview(&config, DeviceKey::Cpu, Mode::Inference).unwrap();
        (report.groups[0].outcome.clone(), preview.layers.len())
    };
    let (path, kernel) = ("norm".to_owned(), "a/b@v1:RMSNorm".to_owned());
    let own = outcome("RMSNorm = \"a/b@v1:RMSNorm\"");
    assert_eq!(own, (GroupOutcome::Apart(Reason::MemberMapped { path, kernel }), 1));
    // What comes with the fused kernel, or is the application's own, leaves the group as it is.
    for text in
        ["", "RMSNorm = \"kernelhub/rmsnorm@v1:RMSNorm\"", "RMSNorm = \"a/b@v1\"\nAddRMSNorm = \"c/d@v1:AddRMSNorm\""]
    {
        assert!(matches!(outcome(text), (GroupOutcome::Fused(_), 2)), "{text}");
    }
}
