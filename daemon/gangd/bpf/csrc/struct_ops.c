// SPDX-License-Identifier: Apache-2.0
/* Object: members of a struct_ops map, set before it is loaded. */
#include "core.h"

#include <errno.h>
#include <string.h>

/* The struct that a SEC(".struct_ops.link") variable is of, as this object knows it. */
static const struct btf_type *struct_of(const struct btf *btf, const char *map)
{
	int id = btf__find_by_name_kind(btf, map, BTF_KIND_VAR);

	id = id < 0 ? id : btf__resolve_type(btf, btf__type_by_id(btf, (__u32)id)->type);
	return id < 0 ? NULL : btf__type_by_id(btf, (__u32)id);
}

/* Byte offset and size of a member, integer or pointer; false when there is none. */
static bool find_member(const struct btf *btf, const struct btf_type *type, const char *name,
			size_t *offset, size_t *size)
{
	const struct btf_member *member = btf_members(type);
	__s64 bytes;
	int i;

	for (i = 0; i < btf_vlen(type); i++) {
		if (strcmp(btf__name_by_offset(btf, member[i].name_off), name))
			continue;
		bytes = btf__resolve_size(btf, member[i].type);
		*offset = member[i].offset / 8;
		*size = bytes > 0 ? (size_t)bytes : 0;
		return bytes == 4 || bytes == 8;
	}
	return false;
}

/* Integers take any value; a function takes 0 only, which leaves it out and does not load it. */
PyObject *object_set_struct_ops(PyObject *op, PyObject *args)
{
	struct object *self = (struct object *)op;
	const struct btf_type *type = NULL;
	const char *name, *member;
	unsigned long long value;
	size_t offset, size, bytes;
	const struct btf *btf;
	struct bpf_map *map;
	char *data;

	if (!PyArg_ParseTuple(args, "ssK:set_struct_ops", &name, &member, &value) ||
	    !object_need(self, OBJECT_OPEN))
		return NULL;
	map = object_find_map(self, name);
	if (!map)
		return NULL;
	btf = bpf_object__btf(self->bpf);
	if (btf && bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS)
		type = struct_of(btf, name);
	data = bpf_map__initial_value(map, &bytes);
	if (!data || !type || !btf_is_struct(type) ||
	    !find_member(btf, type, member, &offset, &size) || offset + size > bytes)
		return core_raise(core_state_of(self), ENOENT, NULL, "%U: member '%s' of '%s'",
				  self->name, member, name);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	memcpy(data + offset, &value, size);
#else
	memcpy(data + offset, (char *)&value + sizeof(value) - size, size);
#endif
	Py_RETURN_NONE;
}
