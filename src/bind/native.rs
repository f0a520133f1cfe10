//! A native function bound to a contract: the argument order, and the call.
#![expect(unsafe_code, reason = "calls kernels by the tvm-ffi convention")]

use kernelhub_abi::TVMFFIAny;

use super::contract::MAX_PARAMETERS;
use super::tensor::TensorArgument;
use super::{BindError, Contract, LayerMeta, Parameter};
use crate::hint::nearest;
use crate::load::{CallFailure, KernelLibrary, NativeFunction};
use crate::manifest::FunctionBinding;

/// The native functions of one layer.
#[derive(Debug)]
pub(super) struct NativeRoute {
    pub(super) forward: NativeBinding,
    pub(super) backward: Option<NativeBinding>,
}

/// A function with its argument order.
#[derive(Debug, Clone)]
pub(super) struct NativeBinding {
    function: NativeFunction,
    name: String,
    /// For each argument of the function, the index of the contract's parameter.
    order: [u8; MAX_PARAMETERS],
    count: usize,
    /// Whether the function's arguments are the contract's first ones, in the contract's order, as most are.
    is_in_order: bool,
    table: &'static [Parameter],
    absent: Absent,
}

/// The value of an optional tensor; None when there is none.
pub(super) fn optional_tensor(tensor: &mut Option<TensorArgument<'_>>) -> TVMFFIAny {
    tensor.as_mut().map_or_else(TVMFFIAny::none, TensorArgument::value)
}

/// The optional parameters that a function does not take: bit `i` for the `i`-th of the contract's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Absent(u16);

impl Absent {
    /// Those optional parameters of a table that `is_taken` says no to.
    pub(super) fn of(table: &[Parameter], is_taken: impl Fn(&str) -> bool) -> Self {
        let absent = table.iter().enumerate().filter(|(_, parameter)| !is_taken(parameter.name));
        Self(absent.fold(0, |bits, (index, _)| bits | 1 << index))
    }

    #[inline]
    pub(super) fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

impl NativeRoute {
    /// Finds the layer's functions and checks their arguments against the contract.
    pub(super) fn new(
        library: &'static KernelLibrary,
        forward: &FunctionBinding,
        backward: Option<&FunctionBinding>,
        contract: Contract,
        kernel: &str,
    ) -> Result<Self, BindError> {
        let backward = backward.map(|binding| match contract.backward() {
            Some(table) => NativeBinding::new(library, binding, contract, table, kernel),
            None => Err(BindError::BackwardRefused {
                kernel: kernel.to_owned(),
                function: binding.function.clone(),
                contract: contract.as_str(),
                is_own: contract.is_own_backward(),
            }),
        });
        let forward = NativeBinding::new(library, forward, contract, contract.forward(), kernel)?;
        Ok(Self { forward, backward: backward.transpose()? })
    }
}

impl NativeBinding {
    /// Finds the function and checks its arguments against a table of the contract.
    fn new(
        library: &'static KernelLibrary,
        binding: &FunctionBinding,
        contract: Contract,
        table: &'static [Parameter],
        kernel: &str,
    ) -> Result<Self, BindError> {
        let refuse = |reason: String, suggestion: Option<&'static str>| {
            let names = |is_optional: bool| {
                let parameters = table.iter().filter(|parameter| parameter.kind.is_optional() == is_optional);
                parameters.map(|parameter| parameter.name).collect()
            };
            BindError::Arguments {
                kernel: kernel.to_owned(),
                function: binding.function.clone(),
                contract: contract.as_str(),
                reason,
                parameters: names(false),
                optional: names(true),
                suggestion,
            }
        };
        let mut order = [0; MAX_PARAMETERS];
        for (position, argument) in binding.args.iter().enumerate() {
            let index = (0_u8..).zip(table).find(|(_, parameter)| parameter.name == argument).map(|(index, _)| index);
            let index = index.ok_or_else(|| {
                let near = nearest(argument, table.iter().map(|parameter| parameter.name));
                let near = near.and_then(|near| table.iter().find(|parameter| parameter.name == near));
                refuse(format!("{argument} is not a parameter"), near.map(|parameter| parameter.name))
            })?;
            if binding.args[..position].contains(argument) {
                return Err(refuse(format!("{argument} stands twice"), None));
            }
            // Unknown and doubled names are refused, so there are at most as many positions as parameters.
            order[position] = index;
        }
        let is_taken = |name: &str| binding.args.iter().any(|argument| argument == name);
        let missing = table.iter().find(|parameter| !parameter.kind.is_optional() && !is_taken(parameter.name));
        if let Some(missing) = missing {
            return Err(refuse(format!("{} is missing", missing.name), None));
        }
        let function = library
            .function(&binding.function)
            .map_err(|source| BindError::Load { kernel: kernel.to_owned(), source: Box::new(source) })?;
        let (name, count, absent) = (binding.function.clone(), binding.args.len(), Absent::of(table, is_taken));
        let is_in_order = (0_u8..).zip(&order[..count]).all(|(position, index)| position == *index);
        Ok(Self { function, name, order, count, is_in_order, table, absent })
    }

    pub(super) fn library(&self) -> &'static KernelLibrary {
        self.function.library()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn absent(&self) -> Absent {
        self.absent
    }

    /// An optional parameter has another value than its default only where the function takes it.
    #[inline]
    pub(super) fn check_option(&self, meta: &LayerMeta, index: usize, is_default: bool) -> Result<(), BindError> {
        if is_default || !self.absent.has(index) {
            return Ok(());
        }
        Err(meta.option_fault(&self.table[index]))
    }

    /// Calls the function with the values of the contract's parameters, in the contract's order; those that the
    /// function does not take are left out.
    ///
    /// # Safety
    /// `values` are the contract's parameters by kind, those that the function does not take have their defaults,
    /// tensors are described truthfully and live until this returns, and shapes, dtypes and strides are those that the
    /// contract and the kernel's limits allow.
    #[inline]
    pub(super) unsafe fn call<const N: usize>(
        &self,
        meta: &LayerMeta,
        values: [TVMFFIAny; N],
    ) -> Result<(), BindError> {
        debug_assert!(self.count <= N, "internal: a contract passes exactly its parameters");
        if self.is_in_order {
            // SAFETY: the caller's contract; the function takes the first of the contract's parameters, in its order.
            let outcome = unsafe { self.function.call(&values[..self.count]) };
            return outcome.map_err(|failure| self.failure(meta, failure));
        }
        let mut arguments = [TVMFFIAny::none(); N];
        for (argument, parameter) in arguments.iter_mut().zip(&self.order[..self.count]) {
            *argument = values[usize::from(*parameter)];
        }
        // SAFETY: the caller's contract, in the order that the function declares.
        let outcome = unsafe { self.function.call(&arguments[..self.count]) };
        outcome.map_err(|failure| self.failure(meta, failure))
    }

    #[cold]
    fn failure(&self, meta: &LayerMeta, failure: CallFailure) -> BindError {
        let message = match failure {
            CallFailure::Refused(message) => message,
            CallFailure::UnexpectedResult(index) => {
                format!("it returned a value of type index {index} where the convention has none")
            }
        };
        BindError::Kernel { kernel: meta.identity.to_string(), function: self.name.clone(), message }
    }
}
