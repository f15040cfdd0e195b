// SPDX-License-Identifier: Apache-2.0
/* Functions that ask the running kernel's BTF (/sys/kernel/btf/vmlinux), and one that waits for
 * RCU. */
#include "core.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Anonymous structs nest a few levels in the kernel; more than this is not its BTF. */
#define MAX_DEPTH 16

static const struct btf *vmlinux(PyObject *module)
{
	struct core_state *st = PyModule_GetState(module);
	CORE_LOG(log);

	if (!st->vmlinux) {
		st->vmlinux = btf__load_vmlinux_btf();
		if (!st->vmlinux)
			core_raise(st, errno, &log, "BTF of the running kernel");
	}
	return st->vmlinux;
}

static const struct btf_type *find_kind(const struct btf *btf, const char *name, __u32 kind)
{
	int id = btf__find_by_name_kind(btf, name, kind);

	return id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;
}

static PyObject *kernel_func_params(PyObject *module, PyObject *arg)
{
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	const struct btf *btf = name ? vmlinux(module) : NULL;
	const struct btf_type *func;

	if (!btf)
		return NULL;
	func = find_kind(btf, name, BTF_KIND_FUNC);
	if (!func)
		Py_RETURN_NONE;
	return PyLong_FromLong(btf_vlen(btf__type_by_id(btf, func->type)));
}

static PyObject *kernel_func_names(PyObject *module, PyObject *arg)
{
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	const struct btf *btf = name ? vmlinux(module) : NULL;
	const struct btf_type *func, *proto;
	const struct btf_param *param;
	PyObject *names, *one;
	int i;

	if (!btf)
		return NULL;
	func = find_kind(btf, name, BTF_KIND_FUNC);
	if (!func)
		Py_RETURN_NONE;
	proto = btf__type_by_id(btf, func->type);
	param = btf_params(proto);
	names = PyList_New(0);
	for (i = 0; names && i < btf_vlen(proto); i++, param++) {
		one = PyUnicode_FromString(btf__name_by_offset(btf, param->name_off));
		if (!one || PyList_Append(names, one))
			Py_CLEAR(names);
		Py_XDECREF(one);
	}
	return names;
}

static PyObject *kernel_has_type(PyObject *module, PyObject *arg)
{
	static const __u32 kinds[] = {BTF_KIND_STRUCT, BTF_KIND_UNION,	BTF_KIND_TYPEDEF,
				      BTF_KIND_ENUM,   BTF_KIND_ENUM64, BTF_KIND_INT};
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	const struct btf *btf = name ? vmlinux(module) : NULL;
	bool found = false;
	size_t i;

	if (!btf)
		return NULL;
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds) && !found; i++)
		found = find_kind(btf, name, kinds[i]);
	return PyBool_FromLong(found);
}

/* Members of anonymous structs and unions count as members, as in C. */
static bool add_members(const struct btf *btf, const struct btf_type *type, PyObject *names,
			int depth)
{
	const struct btf_member *member = btf_members(type);
	const struct btf_type *inner;
	PyObject *name;
	bool added;
	int i, id;

	for (i = 0; i < btf_vlen(type); i++, member++) {
		if (member->name_off) {
			name = PyUnicode_FromString(btf__name_by_offset(btf, member->name_off));
			added = name && !PyList_Append(names, name);
			Py_XDECREF(name);
			if (!added)
				return false;
			continue;
		}
		id = btf__resolve_type(btf, member->type);
		inner = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;
		if (inner && btf_is_composite(inner) && depth < MAX_DEPTH &&
		    !add_members(btf, inner, names, depth + 1))
			return false;
	}
	return true;
}

static PyObject *kernel_struct_members(PyObject *module, PyObject *arg)
{
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	const struct btf *btf = name ? vmlinux(module) : NULL;
	const struct btf_type *type;
	PyObject *names;

	if (!btf)
		return NULL;
	type = find_kind(btf, name, BTF_KIND_STRUCT);
	if (!type)
		type = find_kind(btf, name, BTF_KIND_UNION);
	if (!type)
		Py_RETURN_NONE;
	names = PyList_New(0);
	if (names && !add_members(btf, type, names, 0))
		Py_CLEAR(names);
	return names;
}

static PyObject *enum_value(const struct btf *btf, const struct btf_type *type, const char *name)
{
	const struct btf_enum *value = btf_enum(type);
	int i;

	for (i = 0; i < btf_vlen(type); i++, value++) {
		if (strcmp(btf__name_by_offset(btf, value->name_off), name))
			continue;
		return btf_kflag(type) ? PyLong_FromLong(value->val) :
					 PyLong_FromUnsignedLong((__u32)value->val);
	}
	Py_RETURN_NONE;
}

static PyObject *enum64_value(const struct btf *btf, const struct btf_type *type, const char *name)
{
	const struct btf_enum64 *value = btf_enum64(type);
	__u64 bits;
	int i;

	for (i = 0; i < btf_vlen(type); i++, value++) {
		if (strcmp(btf__name_by_offset(btf, value->name_off), name))
			continue;
		bits = btf_enum64_value(value);
		return btf_kflag(type) ? PyLong_FromLongLong((long long)bits) :
					 PyLong_FromUnsignedLongLong(bits);
	}
	Py_RETURN_NONE;
}

static PyObject *kernel_enum_value(PyObject *module, PyObject *args)
{
	const char *enum_name, *name;
	const struct btf_type *type;
	const struct btf *btf;

	if (!PyArg_ParseTuple(args, "ss:kernel_enum_value", &enum_name, &name))
		return NULL;
	btf = vmlinux(module);
	if (!btf)
		return NULL;
	type = find_kind(btf, enum_name, BTF_KIND_ENUM);
	if (type)
		return enum_value(btf, type, name);
	type = find_kind(btf, enum_name, BTF_KIND_ENUM64);
	if (type)
		return enum64_value(btf, type, name);
	Py_RETURN_NONE;
}

static PyObject *libbpf_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	return Py_BuildValue("(II)", libbpf_major_version(), libbpf_minor_version());
}

static PyObject *possible_cpus(PyObject *module, PyObject *Py_UNUSED(unused))
{
	CORE_LOG(log);
	int cpus = libbpf_num_possible_cpus();

	if (cpus < 0)
		return core_raise(PyModule_GetState(module), cpus, &log, "possible CPUs");
	return PyLong_FromLong(cpus);
}

/* Without nohz_full this is the kernel's synchronize_rcu(): kernel/sched/membarrier.c. */
static PyObject *wait_for_readers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	long err;

	Py_BEGIN_ALLOW_THREADS
	err = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	Py_END_ALLOW_THREADS
	return PyBool_FromLong(!err);
}

PyMethodDef core_functions[] = {
	{"libbpf_version", libbpf_version, METH_NOARGS,
	 "libbpf_version($module, /)\n--\n\n(major, minor) of the libbpf in use."},
	{"possible_cpus", possible_cpus, METH_NOARGS,
	 "possible_cpus($module, /)\n--\n\nSlots of a per-CPU value."},
	{"wait_for_readers", wait_for_readers, METH_NOARGS,
	 "wait_for_readers($module, /)\n--\n\nWait for an RCU grace period."},
	{"detach_link", detach_link, METH_O,
	 "detach_link($module, fd, /)\n--\n\nDetach what the descriptor is of."},
	{"kernel_func_params", kernel_func_params, METH_O,
	 "kernel_func_params($module, name, /)\n--\n\nNumber of parameters, or None."},
	{"kernel_func_names", kernel_func_names, METH_O,
	 "kernel_func_names($module, name, /)\n--\n\nNames of the parameters, or None."},
	{"kernel_has_type", kernel_has_type, METH_O,
	 "kernel_has_type($module, name, /)\n--\n\nWhether the kernel's BTF has this type."},
	{"kernel_struct_members", kernel_struct_members, METH_O,
	 "kernel_struct_members($module, name, /)\n--\n\nMember names, or None."},
	{"kernel_enum_value", kernel_enum_value, METH_VARARGS,
	 "kernel_enum_value($module, enum, name, /)\n--\n\nValue of an enumerator, or None."},
	{0},
};
