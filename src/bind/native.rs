//! A native function bound to a contract: the argument order, and the call.
#![expect(unsafe_code, reason = "calls kernels by the tvm-ffi convention")]

use kernelhub_abi::TVMFFIAny;

use super::{BindError, Contract, LayerMeta};
use crate::load::{CallFailure, KernelLibrary, NativeFunction};
use crate::manifest::FunctionBinding;

/// Most arguments that a contract has.
const MAX_ARGUMENTS: usize = 8;

/// A function with its argument order.
#[derive(Debug, Clone)]
pub(super) struct NativeBinding {
    function: NativeFunction,
    name: String,
    /// For each argument of the function, the index of the contract's parameter.
    order: [usize; MAX_ARGUMENTS],
    count: usize,
}

impl NativeBinding {
    /// Finds the function and checks its arguments against the contract.
    pub(super) fn new(
        library: &'static KernelLibrary,
        binding: &FunctionBinding,
        contract: Contract,
        kernel: &str,
    ) -> Result<Self, BindError> {
        let parameters = contract.parameters();
        let refuse = |reason: String| BindError::Arguments {
            kernel: kernel.to_owned(),
            function: binding.function.clone(),
            contract: contract.as_str(),
            reason,
            parameters: parameters.to_vec(),
        };
        let mut order = [0; MAX_ARGUMENTS];
        for (position, argument) in binding.args.iter().enumerate() {
            let index = parameters.iter().position(|parameter| parameter == argument);
            let index = index.ok_or_else(|| refuse(format!("{argument} is not a parameter")))?;
            if binding.args[..position].contains(argument) {
                return Err(refuse(format!("{argument} stands twice")));
            }
            // Unknown and doubled names are refused, so there are at most as many positions as parameters.
            order[position] = index;
        }
        if let Some(absent) = parameters.iter().find(|parameter| !binding.args.iter().any(|arg| arg == *parameter)) {
            return Err(refuse(format!("{absent} is missing")));
        }
        let function = library
            .function(&binding.function)
            .map_err(|source| BindError::Load { kernel: kernel.to_owned(), source: Box::new(source) })?;
        Ok(Self { function, name: binding.function.clone(), order, count: parameters.len() })
    }

    pub(super) fn library(&self) -> &'static KernelLibrary {
        self.function.library()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Calls the function with the values of the contract's parameters, in the contract's order.
    ///
    /// # Safety
    /// `values` are the contract's parameters by kind, tensors are described truthfully and live until this returns,
    /// and shapes, dtypes and strides are those that the contract and the kernel's limits allow.
    pub(super) unsafe fn call<const N: usize>(
        &self,
        meta: &LayerMeta,
        values: [TVMFFIAny; N],
    ) -> Result<(), BindError> {
        debug_assert_eq!(N, self.count, "internal: a contract passes exactly its parameters");
        let mut arguments = [TVMFFIAny::none(); MAX_ARGUMENTS];
        for (argument, parameter) in arguments.iter_mut().zip(&self.order[..self.count]) {
            *argument = values[*parameter];
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
