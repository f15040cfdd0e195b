// SPDX-License-Identifier: Apache-2.0
/* Module gangd.bpf._core: its state, its types, its constants. */
#include "core.h"

/* struct_ops programs are tied to kernel BTF ids since libbpf 1.4; 1.1 fails with -524. */
#define MIN_MAJOR 1
#define MIN_MINOR 4

#if LIBBPF_MAJOR_VERSION < MIN_MAJOR ||                                                            \
	(LIBBPF_MAJOR_VERSION == MIN_MAJOR && LIBBPF_MINOR_VERSION < MIN_MINOR)
#error "gangd needs the headers of libbpf 1.4 or newer"
#endif

/* The library at run time may be another one than the headers at build time. */
static int check_libbpf(void)
{
	unsigned int major = libbpf_major_version(), minor = libbpf_minor_version();

	if (major > MIN_MAJOR || (major == MIN_MAJOR && minor >= MIN_MINOR))
		return 0;
	PyErr_Format(PyExc_ImportError, "gangd needs libbpf %d.%d or newer; this is %u.%u",
		     MIN_MAJOR, MIN_MINOR, major, minor);
	return -1;
}

static int add_error(PyObject *module, struct core_state *st)
{
	PyObject *attrs = Py_BuildValue("{ss}", "log", "");

	if (!attrs)
		return -1;
	st->error = PyErr_NewExceptionWithDoc(
		"gangd.bpf._core.BpfError", "libbpf or the kernel refused; .log is what they said.",
		PyExc_OSError, attrs);
	Py_DECREF(attrs);
	return st->error ? PyModule_AddObjectRef(module, "BpfError", st->error) : -1;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
	*type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
	return *type ? PyModule_AddType(module, *type) : -1;
}

static int core_exec(PyObject *module)
{
	struct core_state *st = PyModule_GetState(module);

	if (check_libbpf() || add_error(module, st) ||
	    add_type(module, &object_spec, &st->object_type) ||
	    add_type(module, &map_spec, &st->map_type) ||
	    add_type(module, &link_spec, &st->link_type) ||
	    PyModule_AddIntConstant(module, "F_NOEXIST", BPF_NOEXIST) ||
	    PyModule_AddIntConstant(module, "F_EXIST", BPF_EXIST) ||
	    PyModule_AddIntConstant(module, "F_LOCK", BPF_F_LOCK))
		return -1;
	core_log_install();
	return 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg)
{
	struct core_state *st = PyModule_GetState(module);

	Py_VISIT(st->error);
	Py_VISIT((PyObject *)st->object_type);
	Py_VISIT((PyObject *)st->map_type);
	Py_VISIT((PyObject *)st->link_type);
	return 0;
}

static int core_clear(PyObject *module)
{
	struct core_state *st = PyModule_GetState(module);

	Py_CLEAR(st->error);
	Py_CLEAR(st->object_type);
	Py_CLEAR(st->map_type);
	Py_CLEAR(st->link_type);
	return 0;
}

static void core_free(void *module)
{
	struct core_state *st = PyModule_GetState(module);

	core_clear(module);
	btf__free(st->vmlinux);
}

static PyModuleDef_Slot core_slots[] = {
	{Py_mod_exec, core_exec},
	{0},
};

static struct PyModuleDef core_module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "gangd.bpf._core",
	.m_doc = "Handles over libbpf; documented in _core.pyi.",
	.m_size = sizeof(struct core_state),
	.m_methods = core_functions,
	.m_slots = core_slots,
	.m_traverse = core_traverse,
	.m_clear = core_clear,
	.m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&core_module);
}
