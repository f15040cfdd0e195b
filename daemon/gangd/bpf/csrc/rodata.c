// SPDX-License-Identifier: Apache-2.0
/* Object: the "const volatile" knobs of a program, set before it is loaded. */
#include "core.h"

#include <errno.h>
#include <string.h>

struct rodata_var {
	__u32 offset; /* bytes into .rodata */
	__u32 size;
	__u32 type; /* BTF id of the variable's type */
};

static void *rodata_of(struct object *self, size_t *size)
{
	struct bpf_map *map = bpf_object__find_map_by_name(self->bpf, ".rodata");
	void *data = map ? bpf_map__initial_value(map, size) : NULL;

	if (!data)
		return core_raise(core_state_of(self), ENOENT, NULL, "%U: .rodata", self->name);
	return data;
}

static bool find_in_section(const struct btf *btf, const char *name, struct rodata_var *var)
{
	int id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
	const struct btf_var_secinfo *info;
	const struct btf_type *sec, *type;
	int i;

	if (id < 0)
		return false;
	sec = btf__type_by_id(btf, (__u32)id);
	info = btf_var_secinfos(sec);
	for (i = 0; i < btf_vlen(sec); i++) {
		type = btf__type_by_id(btf, info[i].type);
		if (strcmp(btf__name_by_offset(btf, type->name_off), name))
			continue;
		*var = (struct rodata_var){info[i].offset, info[i].size, type->type};
		return true;
	}
	return false;
}

static bool find_var(struct object *self, const char *name, struct rodata_var *var)
{
	const struct btf *btf = bpf_object__btf(self->bpf);

	if (btf && find_in_section(btf, name, var))
		return true;
	core_raise(core_state_of(self), ENOENT, NULL, "%U: variable '%s' in .rodata", self->name,
		   name);
	return false;
}

PyObject *object_rodata(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)op;
	const void *data;
	size_t size;

	if (!object_not_closed(self))
		return NULL;
	data = rodata_of(self, &size);
	return data ? PyBytes_FromStringAndSize(data, (Py_ssize_t)size) : NULL;
}

PyObject *object_set_rodata(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	PyObject *done = NULL;
	Py_buffer new;
	size_t size;
	void *data;

	if (PyObject_GetBuffer(arg, &new, PyBUF_SIMPLE))
		return NULL;
	data = object_need(self, OBJECT_OPEN) ? rodata_of(self, &size) : NULL;
	if (data && (size_t)new.len != size) {
		PyErr_Format(PyExc_ValueError, "%U: .rodata is %zu bytes, %zd given", self->name,
			     size, new.len);
	} else if (data) {
		memcpy(data, new.buf, size);
		done = Py_NewRef(Py_None);
	}
	PyBuffer_Release(&new);
	return done;
}

PyObject *object_rodata_var(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL);
	struct rodata_var var;

	if (!name || !object_not_closed(self) || !find_var(self, name, &var))
		return NULL;
	return Py_BuildValue("(II)", var.offset, var.size);
}

/* Integers, enums and bools of 1, 2, 4 or 8 bytes; arrays and structs go through set_rodata(). */
static bool is_scalar(const struct btf *btf, __u32 id, bool *is_signed)
{
	int resolved = btf__resolve_type(btf, id);
	const struct btf_type *type;

	if (resolved < 0)
		return false;
	type = btf__type_by_id(btf, (__u32)resolved);
	if (btf_is_int(type))
		*is_signed = btf_int_encoding(type) & BTF_INT_SIGNED;
	else if (btf_is_any_enum(type))
		*is_signed = btf_kflag(type);
	else
		return false;
	return true;
}

/* OverflowError unless the value fits: a wrapped knob is worse than none. */
static bool scalar_bits(PyObject *value, __u32 size, bool is_signed, __u64 *bits)
{
	unsigned int width = size * 8;
	long long low;

	if (!is_signed) {
		*bits = PyLong_AsUnsignedLongLong(value);
		if (PyErr_Occurred())
			return false;
		if (width == 64 || !(*bits >> width))
			return true;
	} else {
		low = PyLong_AsLongLong(value);
		if (PyErr_Occurred())
			return false;
		*bits = (__u64)low;
		if (width == 64 || (low >> (width - 1)) == 0 || (low >> (width - 1)) == -1)
			return true;
	}
	PyErr_Format(PyExc_OverflowError, "%S does not fit %u bytes", value, size);
	return false;
}

PyObject *object_set_const(PyObject *op, PyObject *args)
{
	struct object *self = (struct object *)op;
	struct rodata_var var;
	bool is_signed = false;
	const char *name;
	PyObject *value;
	size_t size;
	__u64 bits;
	char *data;

	if (!PyArg_ParseTuple(args, "sO:set_const", &name, &value) ||
	    !object_need(self, OBJECT_OPEN) || !find_var(self, name, &var))
		return NULL;
	data = rodata_of(self, &size);
	if (!data)
		return NULL;
	if (!is_scalar(bpf_object__btf(self->bpf), var.type, &is_signed) ||
	    var.size > sizeof(bits) || (size_t)var.offset + var.size > size)
		return PyErr_Format(PyExc_TypeError, "%U: variable '%s' is not an integer",
				    self->name, name);
	if (!scalar_bits(value, var.size, is_signed, &bits))
		return NULL;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	memcpy(data + var.offset, &bits, var.size);
#else
	memcpy(data + var.offset, (char *)&bits + sizeof(bits) - var.size, var.size);
#endif
	Py_RETURN_NONE;
}
