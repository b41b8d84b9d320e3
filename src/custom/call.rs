//! A call: the arguments of a kernel other than inputs and outputs, and how all arguments are bound.

use std::sync::Arc;

use twox_hash::XxHash3_128;

use super::CustomKernel;
use super::host::{CustomHostKernel, Names};
use super::parameter::{FIRST_ROW, Kind, NUM_SELECTED, Parameter, ROWS, TOTAL_ROWS};
use crate::data::{Dtype, Element, Scalar, Source};
use crate::device::kernel::{
    Argument, Code, Columns, Halo, HostKernel, Kernel, Launch, MakeHostKernel, Resident, ScalarArgs,
};
use crate::error::{KernelError, Result};

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// The most threads of a block on any GPU.
const MOST_THREADS: u32 = 1024;
/// The most bytes of the rows of one block: far more than useful, and so few that no product overflows.
const MOST_BLOCK_BYTES: usize = 64 << 30;
/// The most rows of a halo before a chunk, and behind it: as many as shifts of expressions reach.
const MOST_HALO_ROWS: usize = 65_536;

/// A [`CustomKernel`] with all its arguments other than inputs and outputs.
///
/// ```
/// use overshot::kernel::CustomKernel;
/// use overshot::{DeviceChoice, Engine, Job};
/// const LOOKUP: &str = r#"
/// extern "C" __global__ void lookup(const unsigned char *key, const float *table, float scale, float *y,
///                                   long long rows)
/// {
///     long long i = blockIdx.x * 256ll + threadIdx.x;
///     if (i < rows) y[i] = table[key[i]] * scale;
/// }"#;
/// // SAFETY: it touches rows 0 to `rows` of its columns, and the table at places of one byte.
/// let lookup = unsafe { CustomKernel::cuda("lookup.cu", LOOKUP, "lookup") }?.on_host(|rows| {
///     let (key, table, scale) = (rows.input::<u8>("key"), rows.resident::<f32>("table"), rows.value::<f32>("scale"));
///     rows.output::<f32>("y").iter_mut().zip(key).for_each(|(y, key)| *y = table[usize::from(*key)] * scale);
/// });
/// let table: Vec<f32> = (0..=255u8).map(f32::from).collect();
/// // SAFETY: the table has 256 elements, and a byte has as many values.
/// let call = unsafe { lookup.call().scalar("scale", 0.5f32).resident("table", &table) };
/// let (key, mut y) = ([0u8, 1, 255], [0.0f32; 3]);
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// engine.run(Job::kernel(call).input("key", &key).output("y", &mut y))?;
/// assert_eq!(y, [0.0, 0.5, 127.5]);
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a call does nothing until a job runs it"]
pub struct Call {
    kernel: CustomKernel,
    values: Vec<(String, Scalar)>,
    resident: Vec<(String, Dtype, Arc<Resident>)>,
    scratch: Vec<String>,
}

impl From<&CustomKernel> for Call {
    fn from(kernel: &CustomKernel) -> Call {
        kernel.call()
    }
}

impl Call {
    pub(super) fn new(kernel: CustomKernel) -> Call {
        Call { kernel, values: vec![], resident: vec![], scratch: vec![] }
    }

    /// Sets a parameter to a value of exactly its type.
    pub fn scalar(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Sets a parameter to an array that is the same for all rows. The array is copied to each device once, and counts
    /// as device memory.
    ///
    /// # Safety
    /// The kernel reads nothing beyond an array of this length. It does not receive the length.
    pub unsafe fn resident<T: Element>(mut self, name: &str, array: &[T]) -> Self {
        self.resident.push((name.into(), T::DTYPE, Arc::new(Resident::new(bytemuck::cast_slice(array)))));
        self
    }

    /// Sets a parameter to an array of all rows of a source. See [`resident`](Call::resident).
    ///
    /// # Errors
    /// If the rows cannot be read, or do not fit the memory.
    ///
    /// # Safety
    /// The kernel reads nothing beyond an array of as many rows as the source has.
    pub unsafe fn resident_rows(mut self, name: &str, source: &dyn Source) -> Result<Self> {
        let size =
            source.rows().checked_mul(source.dtype().size() as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let mut bytes = Vec::new();
        if size.is_none_or(|size| bytes.try_reserve_exact(size).is_err()) {
            return Err(KernelError::ResidentTooLarge { array: source.name() }.into());
        }
        bytes.resize(size.unwrap_or_default(), 0);
        source.read(0, &mut bytes)?;
        self.resident.push((name.into(), source.dtype(), Arc::new(Resident::new(&bytes))));
        Ok(self)
    }

    /// Gives a parameter memory for the rows of a chunk. It is not initialised, and is not copied back. Host functions
    /// do not get it: they have their own variables.
    pub fn scratch(mut self, name: &str) -> Self {
        self.scratch.push(name.into());
        self
    }

    /// Returns the names of the parameters that take inputs or resident arrays.
    pub fn input_names(&self) -> impl Iterator<Item = &str> {
        self.pointers(true).filter(|name| !self.resident.iter().any(|(other, ..)| other == name))
    }

    /// Returns the names of the parameters that take outputs or scratch memory.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.pointers(false).filter(|name| *name != NUM_SELECTED && !self.scratch.iter().any(|other| other == name))
    }

    fn pointers(&self, constant: bool) -> impl Iterator<Item = &str> {
        self.kernel.parameters.iter().filter_map(move |parameter| match parameter.kind {
            Kind::Pointer { is_const, .. } if is_const == constant => Some(parameter.name.as_str()),
            _ => None,
        })
    }

    /// Returns the dtype of a parameter that takes a value; `None` for other parameters.
    pub fn value_type(&self, name: &str) -> Option<Dtype> {
        self.kernel.parameters.iter().find_map(|parameter| match parameter.kind {
            Kind::Value(dtype) if parameter.name == name => Some(dtype),
            _ => None,
        })
    }

    /// Returns the arguments other than inputs and outputs, by name.
    pub(crate) fn given(&self) -> Vec<(&str, Given<'_>)> {
        let values = self.values.iter().map(|(name, value)| (name.as_str(), Given::Value(value)));
        let resident = self.resident.iter().map(|(name, dtype, array)| {
            (name.as_str(), Given::Resident(*dtype, (array.bytes().len() / dtype.size()) as u64))
        });
        let scratch = self.scratch.iter().filter_map(|name| {
            let parameter = self.kernel.parameters.iter().find(|parameter| parameter.name == *name)?;
            let Kind::Pointer { dtype, elements, .. } = parameter.kind else { return None };
            Some((name.as_str(), Given::Scratch(dtype, elements as u64)))
        });
        values.chain(resident).chain(scratch).collect()
    }

    /// Returns what tells the kernel from others of the same name: a checksum of its code, parameters and settings.
    /// Closures have no code, and differ in their columns alone.
    pub(crate) fn fingerprint(&self) -> String {
        let CustomKernel { code, parameters, threads, rows_per_block, shared_bytes, halos, .. } = &self.kernel;
        let (kind, text, options): (_, &[u8], &[String]) = match code {
            Code::Cuda { text, options, .. } => ("cuda", text.as_bytes(), options),
            Code::Image(image) => ("image", image, &[]),
            Code::HostOnly => ("host", &[], &[]),
        };
        let settings =
            format!("{kind} {options:?} {parameters:?} {threads} {rows_per_block:?} {shared_bytes} {halos:?}\0");
        checksum(&[settings.as_bytes(), text].concat())
    }

    /// Returns the arguments other than inputs and outputs as text, arrays by their checksums.
    pub(crate) fn given_text(&self) -> Vec<(String, String)> {
        let values = self.values.iter().map(|(name, value)| (name.clone(), format!("{value}:{}", value.dtype())));
        let arrays = self.resident.iter();
        let arrays = arrays.map(|(name, dtype, array)| (name.clone(), format!("{dtype} {}", checksum(array.bytes()))));
        let scratch = self.scratch.iter().map(|name| (name.clone(), "scratch".to_owned()));
        values.chain(arrays).chain(scratch).collect()
    }

    pub(crate) fn entry(&self) -> &str {
        &self.kernel.entry
    }

    /// Binds the kernel to columns in the order of `inputs` and `outputs`.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`](crate::Error::InvalidKernel) if the arguments do not fit the parameters.
    pub(crate) fn bind(&self, inputs: &[(String, Dtype)], outputs: &[String]) -> Result<BoundCall> {
        let CustomKernel { entry, code, parameters, threads, shared_bytes, host, .. } = &self.kernel;
        let tile_rows = self.kernel.rows_per_block.unwrap_or(*threads as usize);
        if !(1..=MOST_THREADS).contains(threads) || tile_rows == 0 || tile_rows > 1 << 30 {
            return Err(KernelError::Block { kernel: entry.clone(), most: MOST_THREADS }.into());
        }
        self.check_names(inputs, outputs)?;
        self.check_block(tile_rows)?;
        self.check_halos()?;
        let kind =
            |name: &str| parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.kind);
        let pointer = |name: &str| match kind(name) {
            Some(Kind::Pointer { dtype, elements, .. }) => (dtype, elements),
            _ => unreachable!("names were checked"),
        };
        let bytes = |name: &str| pointer(name).0.size() * pointer(name).1;
        for (name, dtype) in inputs {
            if pointer(name).0 != *dtype {
                let (parameter, wanted) = (name.clone(), pointer(name).0.to_string());
                let input = dtype.to_string();
                return Err(KernelError::InputDtype { kernel: entry.clone(), parameter, dtype: wanted, input }.into());
            }
        }
        let halos: Vec<Halo> = inputs.iter().map(|(name, _)| self.kernel.halo_of(name)).collect();
        let columns = Columns {
            inputs: inputs.iter().map(|(name, _)| bytes(name)).collect(),
            outputs: outputs.iter().map(|name| bytes(name)).collect(),
            partial_words: usize::from(kind(NUM_SELECTED).is_some()),
            chunk_words: 0,
            most_rows: usize::MAX,
            scratch: self.scratch.iter().map(|name| bytes(name)).collect(),
            tile_rows,
            halos: if halos.iter().all(|halo| halo.is_empty()) { vec![] } else { halos.clone() },
            ..Columns::default()
        };
        let names: Vec<&str> = inputs.iter().map(|(name, _)| name).chain(outputs).map(String::as_str).collect();
        let names = names
            .into_iter()
            .chain(kind(NUM_SELECTED).map(|_| NUM_SELECTED))
            .chain(self.scratch.iter().map(String::as_str));
        let names: Vec<&str> = names.collect();
        let argument = |parameter: &Parameter| {
            let name = &parameter.name;
            if let Some(column) = names.iter().position(|other| other == name) {
                return Ok(Argument::Column(column));
            }
            if let Some(array) = self.resident.iter().position(|(other, ..)| other == name) {
                return Ok(Argument::Resident(array));
            }
            match (name.as_str(), parameter.kind) {
                (ROWS, _) => Ok(Argument::Rows),
                (FIRST_ROW, _) => Ok(Argument::FirstRow),
                (TOTAL_ROWS, _) => Ok(Argument::TotalRows),
                (_, Kind::Value(dtype)) => match self.values.iter().position(|(other, _)| other == name) {
                    Some(value) => Ok(Argument::Value(value)),
                    None => {
                        let dtype = dtype.to_string();
                        Err(KernelError::MissingValue { kernel: entry.clone(), parameter: name.clone(), dtype })
                    }
                },
                (_, Kind::Pointer { is_const: true, .. }) => {
                    Err(KernelError::MissingInput { kernel: entry.clone(), parameter: name.clone() })
                }
                (_, Kind::Pointer { .. }) => {
                    Err(KernelError::MissingOutput { kernel: entry.clone(), parameter: name.clone() })
                }
            }
        };
        let arguments = parameters.iter().map(argument).collect::<Result<_, KernelError>>()?;
        let named = |name: &String| Some((name.clone(), kind(name)?));
        let host_names = Arc::new(Names {
            inputs: inputs.iter().filter_map(|(name, _)| named(name)).collect(),
            outputs: outputs.iter().filter_map(named).collect(),
            resident: self.resident.iter().filter_map(|(name, ..)| named(name)).collect(),
            values: self.values.iter().map(|(name, value)| (name.clone(), value.dtype())).collect(),
            halos,
            tile_rows,
        });
        let host = host.clone().map(|function| {
            let make = move || -> Box<dyn HostKernel> {
                Box::new(CustomHostKernel { function: function.clone(), names: host_names.clone() })
            };
            Box::new(make) as MakeHostKernel
        });
        let kernel = Kernel {
            entry: entry.clone(),
            code: code.clone(),
            launch: Launch {
                arguments,
                blocks_per_tile: 1,
                threads: *threads,
                shared_bytes: *shared_bytes,
                declared: Some(parameters.iter().map(Parameter::declared).collect()),
            },
            columns,
            resident: self.resident.iter().map(|(_, _, array)| array.clone()).collect(),
            values: ScalarArgs::new(self.values.iter().map(|(_, value)| value.bits()).collect()),
            host,
            layers: Arc::default(),
        };
        Ok(BoundCall {
            kernel,
            inputs: inputs.iter().map(|(name, _)| pointer(name).1 as u64).collect(),
            outputs: outputs.iter().map(|name| (pointer(name).0, pointer(name).1 as u64)).collect(),
        })
    }

    /// Checks that every name is a parameter of that kind, and is given once.
    fn check_names(&self, inputs: &[(String, Dtype)], outputs: &[String]) -> Result<(), KernelError> {
        let parameters = &self.kernel.parameters;
        let kernel = || self.kernel.entry.clone();
        if self.kernel.code == Code::HostOnly {
            for (k, Parameter { name, .. }) in parameters.iter().enumerate() {
                if parameters[..k].iter().any(|other| other.name == *name) {
                    return Err(KernelError::TwoColumns { kernel: kernel(), name: name.clone() });
                }
                if [ROWS, FIRST_ROW, TOTAL_ROWS, NUM_SELECTED].contains(&name.as_str()) {
                    return Err(KernelError::ReservedName { kernel: kernel(), name: name.clone() });
                }
            }
        }
        let mut given: Vec<&str> = Vec::new();
        let inputs = inputs.iter().map(|(name, _)| (name, Use::Read, "an input"));
        let outputs = outputs.iter().map(|name| (name, Use::Write, "an output"));
        let resident = self.resident.iter().map(|(name, dtype, _)| (name, Use::Resident(*dtype), "a resident array"));
        let scratch = self.scratch.iter().map(|name| (name, Use::Write, "scratch"));
        let values = self.values.iter().map(|(name, value)| (name, Use::Value(value.dtype()), "a value"));
        for (name, wanted, role) in inputs.chain(outputs).chain(resident).chain(scratch).chain(values) {
            let Some(parameter) = parameters.iter().find(|parameter| parameter.name == *name) else {
                let names: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
                let (name, parameters) = (name.clone(), names.join(", "));
                return Err(KernelError::UnknownParameter { kernel: kernel(), name, parameters });
            };
            let fits = match (wanted, parameter.kind) {
                (Use::Read, Kind::Pointer { is_const, .. }) => is_const,
                (Use::Resident(own), Kind::Pointer { dtype, is_const, .. }) => is_const && own == dtype,
                (Use::Write, Kind::Pointer { is_const, .. }) => !is_const && name != NUM_SELECTED,
                (Use::Value(own), Kind::Value(dtype)) => own == dtype,
                _ => false,
            };
            if matches!(wanted, Use::Read | Use::Resident(_))
                && matches!(parameter.kind, Kind::Pointer { is_const: false, .. })
            {
                return Err(KernelError::NotConst { kernel: kernel(), parameter: name.clone(), role });
            }
            if [ROWS, FIRST_ROW, TOTAL_ROWS].contains(&name.as_str()) {
                return Err(KernelError::SetAtLaunch { kernel: kernel(), parameter: name.clone() });
            }
            if !fits {
                return Err(KernelError::ArgumentType { kernel: kernel(), parameter: name.clone(), role });
            }
            if given.contains(&name.as_str()) {
                return Err(KernelError::GivenTwice { kernel: kernel(), parameter: name.clone() });
            }
            given.push(name);
        }
        Ok(())
    }

    /// Checks that halos are of inputs and within the limit, and that the kernel can know where the rows of the job
    /// begin and end.
    fn check_halos(&self) -> Result<(), KernelError> {
        let kernel = || self.kernel.entry.clone();
        for (name, halo) in &self.kernel.halos {
            let is_input = |name: &String| self.input_names().any(|input| input == name);
            if let Some(name) = name.as_ref().filter(|name| !is_input(name)) {
                return Err(KernelError::HaloOfNoInput { kernel: kernel(), parameter: name.clone() });
            }
            let rows = halo.before.max(halo.after);
            if rows > MOST_HALO_ROWS {
                return Err(KernelError::HaloRows { kernel: kernel(), rows, most: MOST_HALO_ROWS });
            }
            let needed = [(halo.before, FIRST_ROW, "first"), (halo.after, TOTAL_ROWS, "last")];
            let has = |name: &str| self.kernel.parameters.iter().any(|parameter| parameter.name == name);
            let missing = needed.into_iter().find(|(rows, parameter, _)| *rows > 0 && !has(parameter));
            if let Some((_, parameter, end)) = missing.filter(|_| self.kernel.code != Code::HostOnly) {
                return Err(KernelError::HaloBeyondRows { kernel: kernel(), parameter, end });
            }
        }
        Ok(())
    }

    /// Checks that the size of the rows of a block is within the limit.
    fn check_block(&self, tile_rows: usize) -> Result<(), KernelError> {
        let pointers = self.kernel.parameters.iter().filter(|parameter| matches!(parameter.kind, Kind::Pointer { .. }));
        let columns = pointers.filter(|parameter| !self.resident.iter().any(|(name, ..)| *name == parameter.name));
        let add =
            |sum: usize, parameter: &Parameter| sum.checked_add(parameter.kind.row_bytes()?.checked_mul(tile_rows)?);
        match columns.into_iter().try_fold(0, add) {
            Some(bytes) if bytes <= MOST_BLOCK_BYTES => Ok(()),
            _ => {
                let kernel = self.kernel.entry.clone();
                Err(KernelError::BlockBytes { kernel, rows: tile_rows, most: MOST_BLOCK_BYTES })
            }
        }
    }
}

/// An argument that is neither an input nor an output.
pub(crate) enum Given<'c> {
    Value(&'c Scalar),
    /// An array with this number of elements.
    Resident(Dtype, u64),
    /// Memory for rows with this number of elements.
    Scratch(Dtype, u64),
}

/// The use of a parameter.
#[derive(Clone, Copy)]
enum Use {
    Read,
    Write,
    Resident(Dtype),
    Value(Dtype),
}

/// A kernel that is ready to run, and its columns.
pub(crate) struct BoundCall {
    pub(crate) kernel: Kernel,
    /// The number of elements of a row, for each input.
    pub(crate) inputs: Vec<u64>,
    /// The dtype and the number of elements of a row, for each output.
    pub(crate) outputs: Vec<(Dtype, u64)>,
}

impl BoundCall {
    /// Sets the number of rows of the job.
    ///
    /// # Errors
    /// [`KernelError::NoRowsParameter`] if the last block would have fewer rows than the others, and the kernel has no
    /// parameter `rows`: it could not know where its rows end.
    pub(crate) fn set_rows(&mut self, rows: u64) -> Result<(), KernelError> {
        let Kernel { entry, code, launch, columns, .. } = &mut self.kernel;
        columns.total_rows = rows;
        // A job without rows reads none.
        let of_job = |halo: &Halo| if rows == 0 { Halo::default() } else { halo.of_rows(rows) };
        columns.halos.iter_mut().for_each(|halo| *halo = of_job(halo));
        if *code == Code::HostOnly
            || launch.arguments.contains(&Argument::Rows)
            || rows.is_multiple_of(columns.tile_rows as u64)
        {
            return Ok(());
        }
        let block_rows = columns.tile_rows;
        let rows = rows % block_rows as u64;
        Err(KernelError::NoRowsParameter { kernel: entry.clone(), rows, block_rows })
    }
}
