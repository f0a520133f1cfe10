//! The parameter tables of the contracts.

use ParameterKind::{Bool, Float, Input, Int, OptionalInput, OptionalOutput, Output};

/// Most parameters that a contract has.
pub(in crate::bind) const MAX_PARAMETERS: usize = 16;

/// One parameter of a contract's function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// The name in a binding's `args`.
    pub name: &'static str,
    /// What is passed.
    pub kind: ParameterKind,
}

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// A tensor that the function writes.
    Output,
    /// A tensor that the function reads.
    Input,
    /// A tensor that the function reads, or None.
    OptionalInput,
    /// A tensor that the function writes, or None.
    OptionalOutput,
    /// A floating-point number.
    Float {
        /// What a function that does not take the parameter computes with; `None`: every function takes it.
        default: Option<f64>,
    },
    /// A whole number.
    Int {
        /// What a function that does not take the parameter computes with; `None`: every function takes it.
        default: Option<i64>,
    },
    /// A flag.
    Bool,
}

impl ParameterKind {
    /// Whether a binding may leave the parameter out.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        matches!(self, OptionalInput | OptionalOutput) || self.is_optional_scalar()
    }

    #[must_use]
    pub(super) const fn is_optional_scalar(self) -> bool {
        matches!(self, Float { default: Some(_) } | Int { default: Some(_) })
    }
}

/// Where a table has a name, for the faces that pass values by position.
///
/// # Panics
/// When the table lacks the name: at compile time, for it is called in constants alone.
pub(in crate::bind) const fn index_of(table: &[Parameter], name: &str) -> usize {
    let mut index = 0;
    while index < table.len() {
        let (found, name) = (table[index].name.as_bytes(), name.as_bytes());
        if found.len() == name.len() {
            let mut byte = 0;
            while byte < name.len() && found[byte] == name[byte] {
                byte += 1;
            }
            if byte == name.len() {
                return index;
            }
        }
        index += 1;
    }
    panic!("internal: the table has no such parameter")
}

const fn output(name: &'static str) -> Parameter {
    Parameter { name, kind: Output }
}

const fn input(name: &'static str) -> Parameter {
    Parameter { name, kind: Input }
}

const fn optional_input(name: &'static str) -> Parameter {
    Parameter { name, kind: OptionalInput }
}

const fn optional_output(name: &'static str) -> Parameter {
    Parameter { name, kind: OptionalOutput }
}

const fn float(name: &'static str) -> Parameter {
    Parameter { name, kind: Float { default: None } }
}

const fn float_or(name: &'static str, default: f64) -> Parameter {
    Parameter { name, kind: Float { default: Some(default) } }
}

const fn int(name: &'static str) -> Parameter {
    Parameter { name, kind: Int { default: None } }
}

const fn int_or(name: &'static str, default: i64) -> Parameter {
    Parameter { name, kind: Int { default: Some(default) } }
}

const fn flag(name: &'static str) -> Parameter {
    Parameter { name, kind: Bool }
}

pub(in crate::bind) const RMS_NORM: &[Parameter] =
    &[output("out"), input("x"), input("weight"), float("eps"), float_or("offset", 0.0)];
pub(in crate::bind) const RMS_NORM_BACKWARD: &[Parameter] =
    &[output("dx"), output("dweight"), input("dy"), input("x"), input("weight"), float("eps"), float_or("offset", 0.0)];
pub(in crate::bind) const ADD_RMS_NORM: &[Parameter] = &[
    output("out"),
    output("residual_out"),
    input("x"),
    input("residual"),
    input("weight"),
    float("eps"),
    float_or("offset", 0.0),
];
pub(in crate::bind) const LAYER_NORM: &[Parameter] =
    &[output("out"), input("x"), input("weight"), optional_input("bias"), float("eps")];
pub(in crate::bind) const ROTARY: &[Parameter] = &[
    input("x1"),
    input("x2"),
    input("cos"),
    input("sin"),
    output("out1"),
    output("out2"),
    flag("conj"),
    optional_input("y1"),
    optional_input("y2"),
    optional_output("y_out1"),
    optional_output("y_out2"),
];
pub(in crate::bind) const ACTIVATION: &[Parameter] = &[output("out"), input("x")];
pub(in crate::bind) const SOFTMAX: &[Parameter] = &[output("out"), input("x")];
pub(in crate::bind) const GATED_ACTIVATION: &[Parameter] = &[output("out"), input("x")];
pub(in crate::bind) const GATED_ACTIVATION_BACKWARD: &[Parameter] = &[output("dx"), input("dy"), input("x")];
pub(in crate::bind) const FATRELU: &[Parameter] = &[output("out"), input("x"), float("threshold")];
pub(in crate::bind) const ATTENTION: &[Parameter] = &[
    output("out"),
    input("q"),
    input("k"),
    input("v"),
    float("softmax_scale"),
    flag("causal"),
    int_or("window_left", -1),
    int_or("window_right", -1),
    float_or("softcap", 0.0),
];
pub(in crate::bind) const ATTENTION_VARLEN: &[Parameter] = &[
    output("out"),
    input("q"),
    input("k"),
    input("v"),
    input("cu_seqlens_q"),
    input("cu_seqlens_k"),
    int("max_seqlen_q"),
    int("max_seqlen_k"),
    float("softmax_scale"),
    flag("causal"),
    int_or("window_left", -1),
    int_or("window_right", -1),
    float_or("softcap", 0.0),
];
pub(in crate::bind) const ATTENTION_PAGED: &[Parameter] = &[
    output("out"),
    input("q"),
    input("k_cache"),
    input("v_cache"),
    input("block_table"),
    input("seqlens_k"),
    float("softmax_scale"),
    flag("causal"),
    int_or("window_left", -1),
    int_or("window_right", -1),
    float_or("softcap", 0.0),
];
pub(in crate::bind) const LINEAR: &[Parameter] = &[output("out"), input("x"), input("weight"), optional_input("bias")];
pub(in crate::bind) const EMBEDDING: &[Parameter] = &[output("out"), input("ids"), input("weight")];
pub(in crate::bind) const CROSS_ENTROPY: &[Parameter] =
    &[output("loss"), input("logits"), input("targets"), int("ignore_index")];
pub(in crate::bind) const CROSS_ENTROPY_BACKWARD: &[Parameter] =
    &[output("dlogits"), input("dloss"), input("logits"), input("targets"), int("ignore_index")];
